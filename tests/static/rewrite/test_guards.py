from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.ort import runtime
from onnxq.ort.node_kinds import NodeKind, integer_nodes
from onnxq.qconfig import QConfigMapping, default_qconfig_mapping
from onnxq.static.prepare import prepare
from tests.examples import model as example
from tests.examples import weights
from tests.golden_models import conv_model
from tests.static.rewrite.test_qdq import kernels, quantized, worst_lsb
from tests.this_machine import TARGET

if TYPE_CHECKING:
    import onnx_ir as ir

SHAPES = {
    "long": np.array([0, 8, 36, 1]),
    "back": np.array([0, 8, 6, 6]),
    "wide": np.array([0, 8, 4, 9]),
}
NUMBERS = {"one": np.ones((), np.float32), "zero": np.zeros((), np.float32)}
INDICES = {"first": np.array([[0]]), "order": np.arange(8)[::-1].copy()}


def model_of(body: str) -> ir.Model:
    return conv_model(
        body, constants={k: a for k, a in {**SHAPES, **NUMBERS, **INDICES}.items() if k in body}
    )


def without(model: ir.Model, *op_types: str) -> QConfigMapping:
    """The default, but for nodes of these types."""
    qconfig = default_qconfig_mapping()
    for node in prepare(model).model.graph:
        if node.op_type in op_types:
            qconfig = qconfig.set_node(node.name or "", None)
    return qconfig


def test_softmax_over_one_element_is_not_quantized_behind_our_back() -> None:
    model = model_of(
        "c = Conv(x, w) r = Reshape(c, long) s = Softmax<axis=-1>(r) t = Reshape(s, back)"
        " y = Conv(t, v)"
    )
    integer, made, _ = quantized(model)
    assert "Softmax" in kernels(integer)
    assert worst_lsb(model, integer, made) < 2  # every input of the last Conv is 1


@pytest.mark.parametrize("scale", ["Div(r, one)", "Mul(one, r)", "Sub(r, zero)", "Div(r, root)"])
def test_nor_is_it_behind_what_onnx_runtime_takes_out(scale: str) -> None:
    model = model_of(
        f"root = Sqrt(one) c = Conv(x, w) r = Reshape(c, long) d = {scale} s = Softmax<axis=-1>(d)"
        " t = Reshape(s, back) y = Conv(t, v)"
    )
    integer, made, _ = quantized(model)
    assert "Softmax" in kernels(integer)
    assert worst_lsb(model, integer, made) < 2  # every input of the last Conv is 1


def test_conv_with_a_weight_computed_at_run_time_stays_float() -> None:
    model = model_of(
        "c = Conv(x, w) d = Conv(x, v) p = GlobalAveragePool(d)"
        " m = ReduceMax<axes=[0]>(p) q = Transpose<perm=[1,0,2,3]>(m)"
        " e = Conv<group=8>(c, q) y = Conv(e, v)"
    )
    integer, _, _ = quantized(model)
    assert kernels(integer).count("QLinearConv") == 3
    assert "Conv" in kernels(integer)


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) r = Reshape(c, long) s = Sigmoid(r) t = Reshape(s, back) y = Conv(t, v)",
        "c = Conv(x, w) s = Sigmoid(c) t = Relu(s) y = Conv(t, v)",
        "c = Conv(x, w) f = Identity(c) s = Sigmoid(f) y = Conv(s, v)",
    ],
)
def test_guard_sees_through_what_q_and_dq_move_past(body: str) -> None:
    model = model_of(body)
    integer, _, _ = quantized(model, without(model, "Sigmoid", "Reshape", "Relu", "Identity"))
    assert "Sigmoid" in kernels(integer)


@pytest.mark.parametrize("also", [(), ("MaxPool",)], ids=["by default", "named float"])
def test_pool_behind_a_float_conv_is_not_moved_onto_integers(also: tuple[str, ...]) -> None:
    """Measured behind Conv 7x7 of 64 channels at 112x112: 11 us in float, 920 us on integers."""
    model = model_of(
        "c = Conv(x, w) r = Relu(c) p = MaxPool<kernel_shape=[2, 2]>(r) y = Conv(p, v)"
    )
    first = next(iter(prepare(model).model.graph)).name or ""
    integer, _, _ = quantized(model, without(model, *also).set_node(first, None))
    (pool,) = [n for n in runtime.optimized_graph(integer).graph if n.op_type == "MaxPool"]
    behind = pool.outputs[0].consumers()[0]
    if behind.op_type == "ReorderOutput":  # machines without VNNI pool blocks of channels in float
        behind = behind.outputs[0].consumers()[0]
    assert (
        behind.op_type == "Max"
    )  # a Q that had been moved would stand in front, and nothing behind
    assert "Clip" not in kernels(integer)
    assert "QLinearConv" in kernels(integer)


@pytest.mark.parametrize(
    ("op_type", "node", "copies"),
    [
        ("Tanh", "Tanh(c)", 0),
        ("GatherND", "GatherND(c, first)", 0),
        ("Gather", "Gather<axis=1>(c, order)", 1),
        ("Concat", "Concat<axis=0>(c, c)", 1),
        ("Reshape", "Reshape(c, wide)", 2),
    ],
)
def test_guards_stand_where_onnxruntime_fuses_or_moves_past_and_nowhere_else(
    op_type: str, node: str, copies: int
) -> None:
    model = model_of(f"c = Conv(x, w) f = {node} y = Conv(f, v)")
    integer, _, _ = quantized(model, without(model, op_type))
    assert kernels(integer).count("QLinearConv") == 2
    assert kernels(integer).count("Max") == copies
    uses = integer_nodes(runtime.optimized_graph(integer))
    assert {use.kind for use in uses if use.op_type == op_type} == {NodeKind.FLOAT}


MATMUL = {"w": weights(1, 6, 6), "b": weights(2, 6), "v": weights(3, 6, 6), "u": weights(4, 6, 6)}


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [("N", 6), (1, 3, 6), ("N", 3, 6)], ids=str)
@pytest.mark.parametrize("left", [("matmul", "add"), ("matmul",), ("add",)], ids=str)
def test_a_matmul_and_its_bias_stay_float_where_that_is_asked_for(
    left: tuple[str, ...], shape: tuple[int | str, ...], relu: bool
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["c"], "first"),
        helper.make_node("MatMul", ["c", "w"], ["p"], "matmul"),
        helper.make_node("Add", ["b", "p"], ["s"], "add"),
        *([helper.make_node("Relu", ["s"], ["r"], "relu")] if relu else []),
        helper.make_node("MatMul", ["r" if relu else "s", "v"], ["y"], "last"),
    ]
    qconfig = default_qconfig_mapping()
    for name in left:
        qconfig = qconfig.set_node(name, None)
    x = weights(5, *(2 if size == "N" else int(size) for size in shape))
    model = example(nodes, MATMUL, {"x": shape})
    integer = onnxq.quantize(model, [{"x": x}], qconfig=qconfig, target=TARGET)
    onnxq.cross_check(integer, [{"x": x}]).check()
    made = kernels(integer)
    assert "QGemm" not in made
    if "matmul" in left:
        assert {"MatMul", "Gemm", "FusedGemm"} & set(made)


@pytest.mark.nightly
def test_a_long_chain_of_what_a_q_moves_past_is_looked_through() -> None:
    """Twice 600 nodes: recursion would end at a thousand frames."""
    lines = ["h0 = MatMul(x, w)"]
    lines += [f"r{i} = Relu(h{i}) h{i + 1} = Transpose(r{i})" for i in range(600)]
    text = f"g (float[4, 4] x) => (float[4, 4] y) {{ {' '.join(lines)} y = MatMul(h600, w) }}"
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype="f"), "w"))
    made = onnxq.quantize(proto, {"x": np.ones((4, 4), np.float32)})
    assert sum(node.op_type == "Relu" for node in made.graph) <= 600
