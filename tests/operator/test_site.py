from __future__ import annotations

import onnx_ir as ir
import pytest
from onnx_ir.tape import Tape

from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import NodePlan, NodeSite, Site
from onnxq.qparams import QParams, per_tensor
from tests.examples import tensor_of

U, S = per_tensor(0.5, 3, UINT8), per_tensor(0.25, 0, INT8)
BIAS = per_tensor(0.125, 0, INT32)


def float_node() -> ir.Node:
    """pool(x float[N,2]), an operator of two outputs."""
    x = ir.val("x", ir.DataType.FLOAT, ["N", 2])
    node = ir.node("Pool", [x], {"axis": 1, "keep": 0}, num_outputs=2, name="pool")
    types = (ir.DataType.FLOAT, ir.DataType.INT64)
    for name, value, dtype in zip("yi", node.outputs, types, strict=True):
        value.name, value.type, value.shape = name, ir.TensorType(dtype), ir.Shape(["N", 2])
    return node


INTEGERS = ir.val("c", ir.DataType.UINT8, ["N", 2])


def site_of(plan: NodePlan) -> Site:
    """The pool on integers."""
    return Site(Tape(), float_node(), [INTEGERS], plan)


def test_named_attributes_are_those_that_the_node_has() -> None:
    assert set(NodeSite(Tape(), float_node(), []).attributes()) == {"axis", "keep"}
    assert set(NodeSite(Tape(), float_node(), []).attributes("axis", "absent")) == {"axis"}


def test_scale_and_zero_point_are_named_after_the_node() -> None:
    tape = Tape()
    scale, zero_point = NodeSite(tape, float_node(), []).scale_and_zero_point("in0", U)
    assert (scale.name, zero_point.name) == ("pool_in0_scale", "pool_in0_zero_point")
    assert tensor_of(scale).numpy().shape == ()
    assert zero_point.dtype == ir.DataType.UINT8
    assert list(tape.initializers) == [scale, zero_point]


def test_results_have_the_type_of_their_qparams_else_the_float_nodes() -> None:
    tape = Tape()
    y, i = Site(tape, float_node(), [], NodePlan((U,), (U, None))).emit([INTEGERS])
    assert (y.dtype, i.dtype) == (ir.DataType.UINT8, ir.DataType.INT64)
    assert str(y.shape) == str(i.shape) == "[N,2]"
    (node,) = tape.nodes
    assert (node.op_type, node.name, set(node.attributes)) == ("Pool", "pool", {"axis", "keep"})


def test_integers_are_copied_between_equal_qparams_only() -> None:
    site_of(NodePlan((U,), (U, None))).on_integers()
    with pytest.raises(ShapeError, match="copies integers"):
        site_of(NodePlan((U,), (per_tensor(1, 3, UINT8), None))).on_integers()


def test_qlinear_takes_integers_scale_and_zero_point_of_each_operand_then_the_results() -> None:
    tape = Tape()
    node = ir.node("Add", [ir.val("a"), ir.val("b")], name="add")
    Site(tape, node, [INTEGERS, INTEGERS], NodePlan((U, U), (U,))).qlinear("QLinearAdd", {})
    (made,) = tape.nodes
    assert (made.op_type, made.domain) == ("QLinearAdd", "com.microsoft")
    assert [value and value.name for value in made.inputs] == [
        "c", "add_in0_scale", "add_in0_zero_point",
        "c", "add_in1_scale", "add_in1_zero_point",
        "add_out0_scale", "add_out0_zero_point",
    ]  # fmt: skip


@pytest.mark.parametrize("pair", [(U, U), (U, S), (S, S)])
def test_types_of_existing_matrix_kernels_pass(pair: tuple[QParams, QParams]) -> None:
    site_of(NodePlan(pair, (None,))).check_pair()
    site_of(NodePlan(pair, (pair[0],))).check_pair()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (NodePlan((S, U), (None,)), "no kernel for int8 activations with uint8 weights"),
        (NodePlan((U, None), (None,)), "uint8 activations with float32 weights"),
        (NodePlan((U, BIAS), (None,)), "with int32 weights"),
        (NodePlan((U, S), (S,)), "input uint8, output int8"),
    ],
)
def test_types_without_a_matrix_kernel_are_refused(plan: NodePlan, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        site_of(plan).check_pair()


def test_elementwise_kernels_take_one_type() -> None:
    site_of(NodePlan((S, S, None), (S,))).check_same_type()
    with pytest.raises(UnsupportedError, match="operands and result are int8, uint8"):
        site_of(NodePlan((S, U), (S,))).check_same_type()
    with pytest.raises(UnsupportedError, match="are int32"):
        site_of(NodePlan((BIAS,), (BIAS,))).check_same_type()


def test_the_float_node_is_written_with_its_attributes_types_and_shapes() -> None:
    site = site_of(NodePlan((U,), (U, None)))
    y, i = site.float_node([INTEGERS])
    assert (y.dtype, i.dtype) == (ir.DataType.FLOAT, ir.DataType.INT64)
    assert str(y.shape) == "[N,2]"
    (made,) = site.tape.nodes
    assert (made.op_type, set(made.attributes)) == ("Pool", {"axis", "keep"})
