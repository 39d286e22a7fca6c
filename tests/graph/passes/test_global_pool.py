from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.graph.passes.global_pool import MeanToGlobalPool
from onnxq.graph.types import infer_types

if TYPE_CHECKING:
    import onnx_ir as ir

    from tests.graph.conftest import Feeds, Parse, Run

X = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)


def model_of(
    parse: Parse,
    call: str,
    out: str,
    opset: int = 21,
    x: str = "float[N,3,H,W] x",
    weights: Feeds | None = None,
) -> ir.Model:
    return parse(f"g ({x}) => ({out} y) {{ y = {call} }}", weights, opset)


@pytest.mark.parametrize("axes", [[2, 3], [3, 2], [-1, -2], [2, -1]])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_spatial_mean_becomes_a_pool_of_the_same_value(
    axes: list[int], keepdims: int, opset: int, parse: Parse, run: Run
) -> None:
    weights = {"axes": np.array(axes)} if opset >= 18 else None
    call = f"ReduceMean<keepdims={keepdims}>(x, axes)"
    if opset < 18:
        call = f"ReduceMean<keepdims={keepdims}, axes={axes}>(x)"
    out = "float[N,3,1,1]" if keepdims else "float[N,3]"
    model = model_of(parse, call, out, opset, weights=weights)
    before = run(model, {"x": X})[0]
    assert MeanToGlobalPool()(model).modified
    ops = [n.op_type for n in model.graph]
    assert ops == (["GlobalAveragePool"] if keepdims else ["GlobalAveragePool", "Flatten"])
    after = run(model, {"x": X})[0]
    assert after.shape == before.shape
    # 20 numbers below 3 are summed in two orders
    np.testing.assert_allclose(after, before, rtol=0, atol=20 * 3 * 2**-24)
    assert model.graph.outputs[0].name == "y"
    assert not MeanToGlobalPool()(model).modified


@pytest.mark.parametrize(
    ("x", "axes"),
    [
        ("float[N,3,H,W] x", [1, 2]),
        ("float[N,3,H,W] x", [2]),
        ("float[N,3] x", []),
        ("int32[N,3,H,W] x", [2, 3]),
        ("float x", [2, 3]),
        ("float[N,C,A,B,D,E] x", [2, 3, 4, 5]),
    ],
    ids=["channels too", "one axis of two", "all axes", "integers", "scalar", "rank 6"],
)
def test_other_means_stay(x: str, axes: list[int], parse: Parse) -> None:
    call = "ReduceMean<keepdims=1>(x, axes)"
    model = model_of(parse, call, x.split("[")[0].split()[0], x=x, weights={"axes": np.array(axes)})
    assert not MeanToGlobalPool()(model).modified


def test_axes_that_are_computed_stay(parse: Parse) -> None:
    model = parse("g (float[1,2,3,3] x, int64[2] a) => (float y) { y = ReduceMean(x, a) }")
    assert not MeanToGlobalPool()(model).modified


def test_name_and_metadata_of_the_node_stay(parse: Parse) -> None:
    model = model_of(
        parse, "ReduceMean<keepdims=0>(x, a)", "float[N,3]", weights={"a": np.array([2, 3])}
    )
    node = model.graph.node(0)
    node.name = "pool"
    node.metadata_props["scope"] = "net.pool"
    MeanToGlobalPool()(model)
    assert [n.name for n in model.graph] == ["pool", "pool_flatten"]
    assert [n.metadata_props["scope"] for n in model.graph] == ["net.pool"] * 2
    assert [n.outputs[0].name for n in model.graph] == ["y_pooled", "y"]


def test_bodies_of_loops_are_visited(parse: Parse, run: Run) -> None:
    model = parse(
        """g (float[2,3,4,5] x, int64 n, bool c) => (float[2,3,1,1] y) {
        y = Loop (n, c, zero) <body = b (int64 i, bool go, float[2,3,1,1] s) =>
            (bool more, float[2,3,1,1] t) {
            more = Identity(go) m = ReduceMean<keepdims=1>(x, axes) t = Add(s, m) }> }""",
        {"zero": np.zeros((2, 3, 1, 1), np.float32), "axes": np.array([2, 3])},
    )
    body = model.graph.node(0).attributes["body"].as_graph()
    feeds = {"x": X, "n": np.array(3), "c": np.array(True)}
    before = run(model, feeds)[0]
    assert MeanToGlobalPool()(model).modified
    assert [n.op_type for n in body] == ["Identity", "GlobalAveragePool", "Add"]
    np.testing.assert_allclose(run(model, feeds)[0], before, rtol=0, atol=3 * 60 * 2**-24)


SEQUENCE = "g (float[N,6,5] x) => (float[N,6,1] y) {{ {} }}"
WEIGHTS = {"w": np.ones((6, 6, 1), np.float32), "v": np.ones((5, 5), np.float32)}
MEAN = "y = ReduceMean<axes = [-1]>(a)"


@pytest.mark.parametrize(
    ("body", "pools"),
    [
        (f"a = Conv(x, w) {MEAN}", True),
        (f"c = Conv(x, w) a = Relu(c) {MEAN}", True),
        (f"c = Conv(x, w) d = Sigmoid(c) a = Mul(d, c) {MEAN}", True),
        (f"a = Relu(x) {MEAN}", False),
        (f"a = MatMul(x, v) {MEAN}", False),
        (f"c = Conv(x, w) a = Transpose<perm = [0, 2, 1]>(c) {MEAN}", False),
    ],
    ids=["Conv", "Relu", "SiLU", "an input", "MatMul", "Transpose"],
)
def test_three_axes_pool_where_the_channels_come_first_for_sure(
    body: str, pools: bool, parse: Parse
) -> None:
    weights = {name: array for name, array in WEIGHTS.items() if f"{name})" in body}
    model = parse(SEQUENCE.format(body), weights, 13)
    infer_types(model)
    assert MeanToGlobalPool()(model).modified == pools


@pytest.mark.parametrize("x", ["float[N,3,H,W] x", "float[N,3,W] x"])
def test_a_mean_that_is_taken_from_its_tensor_stays(x: str, parse: Parse) -> None:
    axes = [2, 3] if "H" in x else [2]
    model = parse(f"g ({x}) => (y) {{ m = ReduceMean<axes = {axes}>(x) y = Sub(x, m) }}", opset=13)
    assert not MeanToGlobalPool()(model).modified
