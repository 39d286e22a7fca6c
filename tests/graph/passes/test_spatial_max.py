from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.global_pool import SpatialMaxToPool
from onnxq.graph.types import infer_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Parse, Run

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 3, 1, 1)).astype(np.float32)


def model_of(parse: Parse, body: str, out: str, weights: Feeds, opset: int = 21) -> ir.Model:
    made = parse(f"g (float[N,3,4,5] x) => ({out} y) {{ {body} }}", weights, opset)
    infer_types(made)
    return made


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_maximum_over_space_behind_a_convolution_becomes_a_pool_of_the_same_value(
    keepdims: int, opset: int, parse: Parse, run: Run
) -> None:
    weights = {"w": KERNEL} | ({"axes": np.array([-1, 2])} if opset >= 18 else {})
    call = f"ReduceMax<keepdims={keepdims}>(c, axes)"
    if opset < 18:
        call = f"ReduceMax<keepdims={keepdims}, axes=[-1, 2]>(c)"
    out = "float[N,3,1,1]" if keepdims else "float[N,3]"
    model = model_of(parse, f"c = Conv(x, w) y = {call}", out, weights, opset)
    before = run(model, {"x": X})[0]
    assert SpatialMaxToPool()(model).modified
    ops = [node.op_type for node in model.graph]
    assert ops == ["Conv", "MaxPool", *([] if keepdims else ["Flatten"])]
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)
    assert model.graph.outputs[0].name == "y"
    assert not SpatialMaxToPool()(model).modified


def test_global_max_pool_becomes_a_pool_of_the_same_value(parse: Parse, run: Run) -> None:
    model = model_of(parse, "y = GlobalMaxPool(x)", "float[N,3,1,1]", {})
    before = run(model, {"x": X})[0]
    assert SpatialMaxToPool()(model).modified
    assert [node.op_type for node in model.graph] == ["MaxPool"]
    np.testing.assert_array_equal(run(model, {"x": X})[0], before)


@pytest.mark.parametrize(
    ("source", "body", "axes"),
    [
        ("float[N,3,H,5] x", "y = GlobalMaxPool(x)", []),
        ("float[N,3,4,5] x", "y = ReduceMax(x, axes)", [2, 3]),  # nothing says where channels are
        ("float[N,3,4,5] x", "c = Relu(x) y = ReduceMax(c, axes)", [1]),
        ("float[N,3] x", "c = Relu(x) y = ReduceMax(c, axes)", [1]),
    ],
)
def test_other_maxima_stay(source: str, body: str, axes: list[int], parse: Parse) -> None:
    weights = {"axes": np.array(axes)} if axes else {}
    model = parse(f"g ({source}) => (float[a,b,c,d] y) {{ {body} }}", weights, 21)
    infer_types(model)
    assert not SpatialMaxToPool()(model).modified
