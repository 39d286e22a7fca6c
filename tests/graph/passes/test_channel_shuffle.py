from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.channel_shuffle import ShuffleToGather
from onnxq.graph.types import infer_types
from tests.op_types import op_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Parse, Run

X = np.random.default_rng(0).normal(size=(2, 12, 3, 5)).astype(np.float32)


def model_of(
    parse: Parse,
    split: list[int],
    perm: list[int],
    back: list[int],
    x: str = "float[2,12,3,5] x",
) -> ir.Model:
    text = (
        f"g ({x}) => (float r) {{ a = Reshape(x, split) b = Transpose<perm={perm}>(a)"
        " y = Reshape(b, back) r = Relu(y) }"
    )
    model = parse(text, {"split": np.array(split), "back": np.array(back)}, 21)
    infer_types(model)
    return model


@pytest.mark.parametrize("x", ["float[2,12,3,5] x", "float[N,12,3,5] x"])
@pytest.mark.parametrize(
    ("split", "perm", "back"),
    [
        ([0, 3, 4, 3, 5], [0, 2, 1, 3, 4], [0, 12, 3, 5]),
        ([-1, 3, 4, 3, 5], [0, 2, 1, 3, 4], [-1, 12, 3, 5]),
        ([0, 2, 2, 3, 3, 5], [0, 3, 1, 2, 4, 5], [0, -1, 3, 5]),
        ([0, 3, 4, 15], [0, 2, 1, 3], [0, 12, 3, 5]),
    ],
    ids=["two parts", "batch by count", "three parts", "space merged"],
)
def test_a_shuffle_is_one_gather_of_the_same_value(
    x: str, split: list[int], perm: list[int], back: list[int], parse: Parse, run: Run
) -> None:
    model = model_of(parse, split, perm, back, x)
    (before,) = run(model, {"x": X})
    assert ShuffleToGather()(model).modified
    assert op_types(model) == ["Gather", "Relu"]
    assert model.graph.node(0).outputs[0].name == "y"
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)
    assert not ShuffleToGather()(model).modified


def test_a_last_axis_is_shuffled_too(parse: Parse, run: Run) -> None:
    x = X.reshape(2, 12, 15)
    model = model_of(parse, [2, 12, 3, 5], [0, 1, 3, 2], [2, 12, 15], "float[2,12,15] x")
    (before,) = run(model, {"x": x})
    assert ShuffleToGather()(model).modified
    np.testing.assert_array_equal(run(model, {"x": x})[0], before)


@pytest.mark.parametrize(
    ("split", "perm", "back", "x"),
    [
        ([2, 3, 4, 3, 5], [0, 2, 1, 3, 4], [2, 12, 5, 3], "float[2,12,3,5] x"),
        ([2, 3, 4, 3, 5], [0, 1, 3, 2, 4], [2, 12, 3, 5], "float[2,12,3,5] x"),
        ([2, 3, 4, 3, 5], [1, 0, 2, 3, 4], [2, 12, 3, 5], "float[2,12,3,5] x"),
        ([2, 2, 6, 3, 5], [0, 1, 2, 4, 3], [2, 12, 3, 5], "float[2,12,3,5] x"),
        ([-1, 3, 4, 3, 5], [0, 2, 1, 3, 4], [-1, 12, 5, 3], "float[N,12,3,5] x"),
        ([-1, 3, 4, 3, 5], [0, 2, 1, 3, 4], [-1, 12, 3, 5], "float[N,12,H,5] x"),
        ([2, 3, 4, 3, 5], [0, 2, 1, 3, 4], [2, 12, 3, 5], "float[2,C,H,5] x"),
    ],
    ids=[
        "other sizes",
        "two axes",
        "the batch",
        "space",
        "turned",
        "two unknown",
        "channels unknown",
    ],
)
def test_what_moves_more_than_one_axis_stays(
    split: list[int], perm: list[int], back: list[int], x: str, parse: Parse
) -> None:
    assert not ShuffleToGather()(model_of(parse, split, perm, back, x)).modified


def test_a_result_in_between_that_others_read_stays(parse: Parse, run: Run) -> None:
    split, perm, back = [2, 3, 4, 3, 5], [0, 2, 1, 3, 4], [2, 12, 3, 5]
    model = parse(
        "g (float[2,12,3,5] x) => (float r, float z) { a = Reshape(x, split)"
        f" b = Transpose<perm={perm}>(a) z = Relu(b) y = Reshape(b, back) r = Relu(y) }}",
        {"split": np.array(split), "back": np.array(back)},
        21,
    )
    infer_types(model)
    before = run(model, {"x": X})
    assert ShuffleToGather()(model).modified
    assert op_types(model) == [
        "Reshape",
        "Transpose",
        "Relu",
        "Gather",
        "Relu",
    ]
    for one, other in zip(run(model, {"x": X}), before, strict=True):
        np.testing.assert_array_equal(one, other)
