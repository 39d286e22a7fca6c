from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

import onnxq
from onnxq.dynamic.expected_sizes import expected_sizes
from onnxq.errors import QConfigError, ShapeError
from onnxq.operator import Float
from onnxq.pipeline import plan_dynamic
from tests.dynamic_models import parsed
from tests.examples import weights

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH = 256
TEXT = f"""m (float[N,L,{WIDTH}] x) => (float[N,L,{WIDTH}] y) {{ y = MatMul(x, w) }}"""
MODEL = parsed(TEXT, {"w": weights(1, WIDTH, WIDTH)})


def sizes(text: str, **given: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
    return expected_sizes(ir.from_proto(parsed(text, {})), given, {})


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("m (float[N,L,8] x) => (float[N,L,8] y) { y = Relu(x) }", (1, 64, 8)),
        ("m (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }", (1, 3, 224, 224)),
        ("m (float[N,L,8] x, float[N,4,P,2] past_key) => (float[N,L,8] y) { y = Relu(x) }",
         (1, 1, 8)),
    ],
)  # fmt: skip
def test_open_sizes_are_those_of_usual_inputs(text: str, shape: tuple[int, ...]) -> None:
    assert sizes(text)["y"] == shape


def test_a_given_shape_comes_before_a_sample() -> None:
    sample = {"x": np.zeros((2, 5, WIDTH), np.float32)}
    model = ir.from_proto(MODEL)
    assert expected_sizes(model, {}, sample)["y"] == (2, 5, WIDTH)
    assert expected_sizes(model, {"x": (1, 7, WIDTH)}, sample)["y"] == (1, 7, WIDTH)


def test_fixed_sizes_ask_for_nothing() -> None:
    assert sizes("m (float[2,8] x) => (float[2,8] y) { y = Relu(x) }") == {}


def test_unknown_inputs_and_other_ranks_are_refused() -> None:
    text = "m (float[N,8] tokens) => (float[N,8] y) { y = Relu(tokens) }"
    with pytest.raises(QConfigError, match=r"no input 'token'\. Did you mean 'tokens'"):
        sizes(text, token=(1, 8))
    with pytest.raises(ShapeError, match="2 axes"):
        sizes(text, tokens=(8,))


def decision(length: int | None, check: object = onnxq.Check.CALIBRATION) -> object:
    shapes = None if length is None else {"x": (1, length, WIDTH)}
    plan = plan_dynamic(MODEL, target="x86-vnni", shapes=shapes, check=check)[1]
    (found,) = plan.decisions.values()
    return found


def test_rows_decide_where_integers_pay() -> None:
    assert not isinstance(decision(64), Float)
    assert decision(64) == decision(None)
    assert decision(1) == decision(None, {"x": np.zeros((1, 1, WIDTH), np.float32)})
    assert decision(1) != decision(64)


@pytest.mark.parametrize("shape", [(1, 7, WIDTH + 1), (1, 0, WIDTH), (1, 2**40, WIDTH)])
def test_sizes_that_the_input_cannot_have_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(QConfigError, match="the model wants"):
        expected_sizes(ir.from_proto(MODEL), {"x": shape}, {})
