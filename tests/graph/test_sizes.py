from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.graph.sizes import sizes_of
from onnxq.graph.types import never_inferred

if TYPE_CHECKING:
    from tests.graph.conftest import Parse

TEXT = "g (float[N,3,H,W] x) => (float[N,M] y) { a = Conv(x, w) b = Relu(a) y = Flatten(b) }"
WEIGHT = np.ones((20, 3, 3, 3), np.float32)


def test_sizes_follow_from_those_of_the_inputs(parse: Parse) -> None:
    model = parse(TEXT, {"w": WEIGHT})
    assert sizes_of(model, {"x": (1, 3, 8, 10)}) == {
        "x": (1, 3, 8, 10),
        "w": (20, 3, 3, 3),
        "a": (1, 20, 6, 8),
        "b": (1, 20, 6, 8),
        "y": (1, 960),
    }
    assert sizes_of(model, {"x": (2, 3, 4, 4)})["y"] == (2, 80)  # the model stayed as it is


def test_sizes_that_the_model_fixes_stay(parse: Parse) -> None:
    model = parse("g (float[4,N] x) => (float[4,N] y) { y = Relu(x) }", {})
    assert sizes_of(model, {"x": (1, 6)})["y"] == (4, 6)


def test_values_that_depend_on_data_are_left_out(parse: Parse) -> None:
    model = parse("g (float[N] x) => (int64[1,K] y) { y = NonZero(x) }", {})
    assert sizes_of(model, {"x": (5,)}) == {"x": (5,)}


def test_a_shape_of_another_rank_is_refused(parse: Parse) -> None:
    model = parse(TEXT, {"w": WEIGHT})
    with pytest.raises(ShapeError, match="input 'x' has 4 axes"):
        sizes_of(model, {"x": (1, 3)})


@pytest.mark.parametrize(
    "normalization",
    ["GroupNormalization<num_groups = 2>(x, s, b)", "MeanVarianceNormalization(x)"],
)
def test_sizes_behind_normalizations_that_onnx_does_not_infer_are_known(
    parse: Parse, normalization: str
) -> None:
    text = f"g (float[N,4,H] x) => (float[N,4,H] y) {{ a = {normalization} y = Relu(a) }}"
    model = parse(text, {"s": np.ones(4, np.float32), "b": np.zeros(4, np.float32)})
    found = sizes_of(model, {"x": (1, 4, 9)})
    assert found["a"] == found["y"] == (1, 4, 9)


def test_onnx_infers_all_operators_but_two_normalizations() -> None:
    assert never_inferred() == {"GroupNormalization", "MeanVarianceNormalization"}
