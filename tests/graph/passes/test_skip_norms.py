from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph.canonical import canonicalize
from onnxq.graph.passes.fuse_layer_normalization import TakeSkipNormsApart
from tests.op_types import op_types

if TYPE_CHECKING:
    from tests.graph.conftest import Run

WIDTH = 8
RNG = np.random.default_rng(0)
VECTORS = {n: RNG.standard_normal(WIDTH).astype(np.float32) for n in ("gamma", "beta", "bias")}
W = RNG.standard_normal((WIDTH, WIDTH)).astype(np.float32)
FEEDS = {n: RNG.standard_normal((2, 3, WIDTH)).astype(np.float32) for n in ("x", "skip")}
LAYER, SIMPLE = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"


def model_of(
    op_type: str,
    inputs: list[str],
    outputs: list[str],
    opset: int = 17,
    skip: tuple[int | str, ...] = (2, 3, WIDTH),
    **attributes: Any,
) -> ir.Model:
    """The node behind p = MatMul(x, w); every output that has a name is the model's."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "matmul"),
        helper.make_node(op_type, inputs, outputs, "norm", domain="com.microsoft", **attributes),
    ]
    shapes = {"x": (2, 3, WIDTH), "skip": skip}
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, float32, shape) for n, shape in shapes.items()],
        [helper.make_tensor_value_info(n, float32, (2, 3, WIDTH)) for n in outputs if n],
        [numpy_helper.from_array(array, n) for n, array in {**VECTORS, "w": W}.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=9))


CASES = {
    "plain": (LAYER, ["p", "skip", "gamma", "beta"]),
    "no beta": (LAYER, ["p", "skip", "gamma"]),
    "bias": (LAYER, ["p", "skip", "gamma", "beta", "bias"]),
    "bias, no beta": (LAYER, ["p", "skip", "gamma", "", "bias"]),
    "bias of the second": (LAYER, ["skip", "p", "gamma", "beta", "bias"]),
    "simple": (SIMPLE, ["p", "skip", "gamma"]),
    "simple, bias": (SIMPLE, ["p", "skip", "gamma", "bias"]),
}


@pytest.mark.parametrize("outputs", [["y"], ["y", "", "", "s"]], ids=["result", "and sum"])
@pytest.mark.parametrize(("op_type", "inputs"), CASES.values(), ids=CASES)
def test_the_two_compute_what_the_one_does(
    op_type: str, inputs: list[str], outputs: list[str], run: Run
) -> None:
    source = model_of(op_type, inputs, outputs, epsilon=1e-3)
    model = source.clone()
    assert TakeSkipNormsApart()(model).modified
    assert [v.name for v in model.graph.outputs] == [n for n in outputs if n]
    assert not TakeSkipNormsApart()(model).modified
    norm = {LAYER: "LayerNormalization", SIMPLE: "RMSNormalization"}[op_type]
    adds = ["Add"] * (1 + ("bias" in inputs))
    assert op_types(model) == ["MatMul", *adds, norm]
    for got, wanted in zip(run(model, FEEDS), run(source, FEEDS), strict=True):
        # sums of 8 numbers in another order
        np.testing.assert_allclose(got, wanted, rtol=0, atol=128 * 2.0**-23)


def test_the_bias_is_added_to_the_matmul() -> None:
    model = model_of(*CASES["bias of the second"], ["y"])
    TakeSkipNormsApart()(model)
    assert [v.name for v in model.graph.node(1).inputs if v is not None] == ["p", "bias"]


def test_epsilon_is_1e_12_unless_it_is_said() -> None:
    model = model_of(*CASES["plain"], ["y"])
    TakeSkipNormsApart()(model)
    assert model.graph.node(2).attributes.get_float("epsilon") == pytest.approx(1e-12)


def test_a_skip_of_one_row_is_broadcast(run: Run) -> None:
    source = model_of(*CASES["plain"], ["y"], skip=(3, WIDTH))
    model, feeds = source.clone(), {**FEEDS, "skip": FEEDS["skip"][0]}
    TakeSkipNormsApart()(model)
    np.testing.assert_allclose(run(model, feeds)[0], run(source, feeds)[0], atol=1e-5)


def test_the_opset_is_raised_and_the_types_are_known() -> None:
    model = canonicalize(model_of(*CASES["bias"], ["y"], opset=13)).model
    assert model.opset_imports[""] >= 17
    assert op_types(model) == ["MatMul", "Add", "Add", "LayerNormalization"]
    assert all(v.dtype == ir.DataType.FLOAT for node in model.graph for v in node.outputs)


def test_a_node_whose_deviation_is_read_stays() -> None:
    model = model_of(LAYER, ["p", "skip", "gamma"], ["y", "", "deviation"])
    assert not TakeSkipNormsApart()(model).modified
    assert op_types(model) == ["MatMul", LAYER]
