from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from onnxq import targets
from onnxq.observers import MinMaxObserver, NarrowRangeObserver, ObserverSpec
from onnxq.operator import Float, Precision
from onnxq.operators.softmax import OUTPUT_RANGE
from onnxq.qconfig import (
    QConfig,
    QConfigMapping,
    default_qconfig_mapping,
    onnxq_default_qconfig,
)
from onnxq.static.insertion.context import Context, Rules
from onnxq.static.insertion.decision import Quantize
from onnxq.static.insertion.insert_quantizers import Placement, place
from onnxq.static.reasons import NotFloat32

W = "float[4,4,1,1] w, float[4] b"


def placed(
    body: str, qconfig: QConfigMapping | None = None, inputs: str = "float[1,4,8,8] x"
) -> Placement:
    """Places a graph given as ONNX text; w, v and m are weights, b a bias."""
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float[1,4,8,8] y) {{ {body} }}'
    )
    constants: dict[str, npt.NDArray[np.generic]] = {
        "w": np.ones((4, 4, 1, 1), np.float32),
        "b": np.ones(4, np.float32),
        "m": np.ones((8, 8), np.float32),
        "bias8": np.ones(8, np.float32),
        "low": np.array(0, np.float32),
        "minus": np.array(-1, np.float32),
        "seven": np.array(7, np.float32),
        "six": np.array(6, np.float32),
        "shape": np.array([1, 4, 8, 8]),
    }
    named = {v.name: v for n in model.graph for v in n.inputs if v is not None}
    for name, array in constants.items():
        if name in named:
            value = named[name]
            value.const_value = ir.Tensor(array, name=name)
            value.type = ir.TensorType(ir.DataType.from_numpy(array.dtype))
            value.shape = ir.Shape(array.shape)
            model.graph.register_initializer(value)
    for i, node in enumerate(model.graph):
        node.name = f"n{i}_{node.op_type}"
        for value in node.outputs:
            value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
            value.shape = value.shape or ir.Shape([1, 4, 8, 8])
    return placed_on(model, "x86-vnni", qconfig)


def placed_on(model: ir.Model, target: str, qconfig: QConfigMapping | None = None) -> Placement:
    mapping = qconfig or default_qconfig_mapping()
    return place(Context(model, Rules.of_model(model), targets.find(target), mapping), mapping)


def summary(placement: Placement) -> list[str]:
    """Per node: Q, the node that it is folded into, or float."""
    lines = []
    for decision in placement.decisions.values():
        if isinstance(decision, Float):
            lines.append("float")
        else:
            lines.append(decision.folded_into or "Q")
    return lines


def test_relu_behind_a_conv_is_folded_and_its_output_carries_the_qparams() -> None:
    placement = placed("c = Conv(x, w, b) y = Relu(c)")
    assert summary(placement) == ["Q", "n0_Conv"]
    assert list(placement.quantized) == ["x", "y"]
    assert placement.clamps == {"y": (0.0, float("inf"))}


def test_relu_is_not_folded_when_others_read_the_conv() -> None:
    placement = placed("c = Conv(x, w) r = Relu(c) y = Add(c, r)")
    assert summary(placement) == ["Q", "Q", "Q"]
    assert placement.clamps == {}
    assert placement.root("c") == placement.root("r")


def test_relu6_behind_relu_folds_to_the_tighter_bounds() -> None:
    placement = placed("c = Conv(x, w) r = Relu(c) y = Clip(r, low, six)")
    assert summary(placement) == ["Q", "n0_Conv", "n0_Conv"]
    assert placement.clamps == {"y": (0.0, 6.0)}


def test_residual_add_with_relu_is_quantized_once_behind_the_relu() -> None:
    placement = placed("c = Conv(x, w) s = Add(c, x) y = Relu(s)")
    assert summary(placement) == ["Q", "Q", "n1_Add"]
    assert list(placement.quantized) == ["x", "c", "y"]


def test_add_of_float_tensors_stays_float() -> None:
    placement = placed("a = Softmax(x) z = Softmax(a) y = Add(a, z)")
    assert summary(placement) == ["float"] * 3


def test_pooling_of_a_float_tensor_that_a_later_product_wants_in_integers_runs_in_integers() -> (
    None
):
    squeeze_and_excite = (
        "c = Conv(x, w) h = Erf(c) p = GlobalAveragePool(h) "
        "e = Conv(p, w) s = Sigmoid(e) z = Mul(h, s) y = Conv(z, w)"
    )
    placement = placed(squeeze_and_excite)
    assert summary(placement) == ["Q", "float", "Q", "Q", "Q", "Q", "Q"]


@pytest.mark.parametrize(
    "body",
    [
        "h = HardSwish(x) p = GlobalAveragePool(h) e = Conv(p, w) y = Softmax(h)",
        "h = HardSwish(x) p = GlobalAveragePool(h) e = Conv(h, w) y = Softmax(p)",
    ],
    ids=["its input is float only", "its result is read in float only"],
)
def test_pooling_stays_float_where_integers_would_be_made_for_it_alone(body: str) -> None:
    assert summary(placed(body))[1] == "float"


@pytest.mark.parametrize(
    "node", ["Relu(h)", "Clip(h, low, six)", "MaxPool<kernel_shape=[1, 1]>(h)"]
)
def test_clamps_and_pools_of_float_tensors_stay_float_and_their_result_gets_integers(
    node: str,
) -> None:
    placement = placed(f"h = HardSwish(x) r = {node} y = Conv(r, w)")
    assert summary(placement) == ["float", "float", "Q"]
    assert list(placement.quantized) == ["r", "y"]


@pytest.mark.parametrize("node", ["Relu(x)", "MaxPool<kernel_shape=[1, 1]>(x)"])
def test_clamps_and_pools_of_a_graph_input_run_on_integers(node: str) -> None:
    assert summary(placed(f"r = {node} y = Conv(r, w)")) == ["Q", "Q"]


def test_data_movement_between_float_nodes_stays_float() -> None:
    placement = placed("a = Softmax(x) t = Transpose(a) y = Softmax(t)")
    assert summary(placement) == ["float"] * 3
    assert not placement.quantized


def test_data_movement_before_a_conv_moves_integers() -> None:
    placement = placed("t = Transpose(x) y = Conv(t, w)")
    assert summary(placement) == ["Q", "Q"]
    assert placement.root("x") == placement.root("t") != placement.root("y")


def test_matmul_with_vector_bias_is_one_node() -> None:
    placement = placed("p = MatMul(x, m) y = Add(p, bias8)")
    assert summary(placement) == ["Q", "n0_MatMul"]
    assert list(placement.quantized) == ["x"]  # no integer node reads the result


def test_nor_is_it_two_where_integers_are_read() -> None:
    placement = placed("p = MatMul(x, m) s = Add(p, bias8) y = MatMul(s, m)")
    assert summary(placement) == ["Q", "n0_MatMul", "Q"]
    assert list(placement.quantized) == ["x", "s"]


def test_matmul_that_only_float_nodes_read_keeps_a_float_result() -> None:
    placement = placed("p = MatMul(x, m) y = Softmax(p)")
    decision = placement.decisions["n0_MatMul"]
    assert isinstance(decision, Quantize)
    assert decision.results == ()
    assert list(placement.quantized) == ["x"]


def test_loop_bodies_stay_float_with_that_reason() -> None:
    body = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]>'
        " b (int64 i, bool c) => (bool d, float[1,4,8,8] s)"
        " { d = Identity(c) s = Conv(x, w) }"
    )
    body.graph.node(1).name = "inner"
    trip = ir.Value(name="trip", type=ir.TensorType(ir.DataType.INT64))
    loop = ir.node("Loop", [trip, None], {"body": ir.AttrGraph("body", body.graph)}, name="loop")
    for node in body.graph:
        node.name = node.name or "copy"
    model = ir.Model(
        ir.Graph([trip], loop.outputs, nodes=[loop], opset_imports={"": 21}), ir_version=10
    )
    placement = placed_on(model, "portable")
    decision = placement.decisions["inner"]
    assert isinstance(decision, Float)
    assert "Loop 'loop'" in decision.reason.words


def test_int64_add_is_float_with_its_type_as_reason() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (int64[2] a) => (int64[2] y) { y = Add(a, a) }'
    )
    model.graph.node(0).name = "sum"
    decision = placed_on(model, "portable").decisions["sum"]
    assert decision == Float(NotFloat32("int64"))


def test_qconfig_none_leaves_one_node_float_and_its_neighbours_in_integers() -> None:
    qconfig = default_qconfig_mapping().set_node("n1_Conv", None)
    placement = placed("c = Conv(x, w) d = Conv(c, w) y = Conv(d, w)", qconfig)
    assert summary(placement) == ["Q", "float", "Q"]


def test_asked_for_operator_is_quantized_although_it_is_slow() -> None:
    body = "c = Conv(x, w) y = Softmax(c)"
    assert summary(placed(body)) == ["Q", "float"]
    base = default_qconfig_mapping()
    asked = base.set_op_type("Softmax", base.for_node("n0_Conv", "Conv"))
    placement = placed(body, asked)
    assert summary(placement) == ["Q", "Q"]
    assert placement.ranges == {"y": OUTPUT_RANGE}


def test_range_of_wide_integers_is_observed() -> None:
    wide = QConfig(MinMaxObserver.with_args(dtype="uint16"), NarrowRangeObserver.with_args())
    asked = default_qconfig_mapping().set_op_type("Softmax", wide)
    placement = placed("c = Conv(x, w) y = Softmax(c)", asked)
    assert summary(placement) == ["Q", "Q"]
    assert placement.ranges == {}


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (NarrowRangeObserver.with_args(), "int8 weight within +-127"),
        (MinMaxObserver.with_args(dtype="quint8"), "uint8 weight,"),
    ],
)
def test_description_names_the_type_of_the_weight(weight: ObserverSpec, words: str) -> None:
    qconfig = QConfig(MinMaxObserver.with_args(), weight)
    placement = placed("y = Conv(x, w)", default_qconfig_mapping().set_global(qconfig))
    decision = placement.decisions["n0_Conv"]
    assert isinstance(decision, Quantize)
    assert words in decision.how.words


@pytest.mark.parametrize("bounds", ["six, seven", "minus, minus"])
def test_clip_on_its_own_stays_float_where_its_bounds_leave_out_zero(bounds: str) -> None:
    clip = f"Clip(p, {bounds})"
    placement = placed(
        f"c = Conv(x, w) p = MaxPool<kernel_shape=[1,1]>(c) r = {clip} y = Conv(r, w)"
    )
    assert summary(placement) == ["Q", "float", "float", "Q"]
    folded = placed(f"p = Conv(x, w) r = {clip} y = Conv(r, w)")
    assert summary(folded) == ["Q", "n0_Conv", "Q"]


def test_data_movement_whose_result_no_integer_node_reads_stays_float() -> None:
    placement = placed("c = Conv(x, w) y = Transpose(c)")
    assert summary(placement) == ["Q", "float"]
    both = placed("i = Identity(x) s = Transpose(i) y = Conv(x, w)")
    assert summary(both) == ["float", "float", "Q"]


def test_data_movement_between_integer_nodes_stays_in_integers() -> None:
    gemm = placed("c = Conv(x, w) g = GlobalAveragePool(c) r = Reshape(g, shape) y = MatMul(r, m)")
    assert summary(gemm) == ["Q"] * 4
    element = placed("c = Conv(x, w) t = Transpose(c) y = Add(t, t)")
    assert summary(element) == ["Q"] * 3
    chosen = placed("c = Conv(x, w) y = ArgMax(c)")
    assert summary(chosen) == ["Q", "Q"]


def test_tensor_left_float_by_the_qconfig_leaves_its_nodes_float() -> None:
    placement = placed(
        "c = Conv(x, w) y = Conv(c, w)", default_qconfig_mapping().set_tensor("c", None)
    )
    assert summary(placement) == ["float", "float"]


def test_concat_input_with_other_readers_keeps_its_own_qparams() -> None:
    placement = placed(
        "a = Conv(x, w) c = Conv(x, w) k = Concat<axis=1>(a, c) p = Conv(a, w) y = Conv(k, w)"
    )
    assert placement.root("c") == placement.root("k") != placement.root("a")
    assert "k" not in placement.shared_outputs  # part of its data is observed nowhere else


def test_observer_of_a_tensor_is_the_qconfig_of_the_node_that_makes_it() -> None:
    mine = QConfig(
        MinMaxObserver.with_args(),
        MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric"),
    )
    placement = placed(
        "c = Conv(x, w) y = Conv(c, w)", default_qconfig_mapping().set_node("n0_Conv", mine)
    )
    assert placement.owners["c"] == ("n0_Conv", "Conv")
    assert placement.owners["y"] == ("n1_Conv", "Conv")


@pytest.mark.parametrize("op", ["Conv(x, u)", "MatMul(x, u)"])
def test_conv_with_weight_computed_at_run_time_says_so(op: str) -> None:
    placement = placed(f"u = Softmax(z) y = {op}", inputs="float[1,4,8,8] x, float[4,4,1,1] z")
    decision = list(placement.decisions.values())[1]
    if op.startswith("Conv"):
        assert isinstance(decision, Float)
        assert "run time" in decision.reason.words
    else:  # two activations
        assert isinstance(decision, Quantize)


def test_nodes_written_on_integers_want_an_integer_reader() -> None:
    assert summary(placed("c = Conv(x, w) s = Sub(c, x) y = Conv(s, w)")) == ["Q"] * 3
    assert summary(placed("c = Conv(x, w) y = Sub(c, x)")) == ["Q", "float"]
    assert summary(placed("c = Conv(x, w) s = Sub(c, x) y = Erf(s)")) == ["Q", "float", "float"]
    chain = placed("c = Conv(x, w) s = Sub(c, x) y = Tanh(s)")
    assert summary(chain) == ["Q", "float", "float"]
    assert "no integer node reads its result" in str(chain.decisions["n1_Sub"])


def test_a_relu_between_passes_the_demand_on() -> None:
    placement = placed("c = Conv(x, w) e = Elu(c) r = Relu(e) y = Conv(r, w)")
    assert "float" not in summary(placement)


def test_a_node_written_on_integers_that_the_qconfig_names_needs_no_reader() -> None:
    named = default_qconfig_mapping().set_op_type("Tanh", default_qconfig_mapping().global_qconfig)
    assert summary(placed("c = Conv(x, w) y = Tanh(c)", named)) == ["Q", "Q"]


# forms that are named


def formed(form: Precision, *op_types: str) -> QConfigMapping:
    """The default, with that form for these."""
    mapping = default_qconfig_mapping()
    for op_type in op_types:
        mapping = mapping.set_op_type(op_type, replace(onnxq_default_qconfig, precision=form))
    return mapping


def test_a_float_result_has_no_q_behind_it_and_takes_its_bias_alone_in() -> None:
    body = "p = MatMul(x, m) s = Add(p, bias8) r = Relu(s) y = MatMul(r, m)"
    placement = placed(body, formed(Precision.INT8_FLOAT_OUTPUT, "MatMul"), "float[4,8] x")
    assert summary(placement) == ["Q", "n0_MatMul", "float", "Q"]
    assert list(placement.quantized) == ["x", "r"]


def test_a_named_integer_has_integers_out_whoever_reads_them() -> None:
    placement = placed(
        "p = MatMul(x, m) y = Erf(p)", formed(Precision.INT8, "MatMul"), "float[4,8] x"
    )
    assert list(placement.quantized) == ["x", "p"]


def test_a_conv_has_integers_out_whatever_is_asked() -> None:
    placement = placed("c = Conv(x, w) y = Relu(c)", formed(Precision.INT8_FLOAT_OUTPUT, "Conv"))
    assert summary(placement) == ["Q", "n0_Conv"]


def test_a_named_float_stays_float() -> None:
    placement = placed("y = Conv(x, w)", formed(Precision.FLOAT, "Conv"))
    assert summary(placement) == ["float"]


def test_nodes_that_stay_float_tell_the_conversions_that_integers_would_take() -> None:
    floats = placed("y = Add(x, x2)", inputs="float[1,4,8,8] x, float[1,4,8,8] x2")
    assert "3 conversions in place of none" in str(floats.decisions["n0_Add"])
    idle = placed("c = Conv(x, w) y = Tanh(c)")
    assert "take 1 conversion in place of 1" in str(idle.decisions["n1_Tanh"])
    moved = placed("c = Conv(x, w) y = Transpose(c)")
    assert "take 1 conversion in place of 1" in str(moved.decisions["n1_Transpose"])
    unknown = placed("c = Conv(x, w) y = Shrink(c)")
    assert "integers would take 2 conversions" in str(unknown.decisions["n1_Shrink"])
