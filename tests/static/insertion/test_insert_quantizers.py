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
from onnxq.static.insertion.insert_quantizers import QuantizerInsertion, insert_quantizers
from onnxq.static.reasons import NotFloat32

W = "float[4,4,1,1] w, float[4] b"


def inserted(
    body: str, qconfig: QConfigMapping | None = None, inputs: str = "float[1,4,8,8] x"
) -> QuantizerInsertion:
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


def placed_on(
    model: ir.Model, target: str, qconfig: QConfigMapping | None = None
) -> QuantizerInsertion:
    mapping = qconfig or default_qconfig_mapping()
    return insert_quantizers(
        Context(model, Rules.of_model(model), targets.find(target), mapping), mapping
    )


def summary(insertion: QuantizerInsertion) -> list[str]:
    """Per node: Q, the node that it is folded into, or float."""
    lines = []
    for decision in insertion.decisions.values():
        if isinstance(decision, Float):
            lines.append("float")
        else:
            lines.append(decision.folded_into or "Q")
    return lines


def test_relu_behind_a_conv_is_folded_and_its_output_carries_the_qparams() -> None:
    insertion = inserted("c = Conv(x, w, b) y = Relu(c)")
    assert summary(insertion) == ["Q", "n0_Conv"]
    assert list(insertion.quantized) == ["x", "y"]
    assert insertion.clamps == {"y": (0.0, float("inf"))}


def test_relu_is_not_folded_when_others_read_the_conv() -> None:
    insertion = inserted("c = Conv(x, w) r = Relu(c) y = Add(c, r)")
    assert summary(insertion) == ["Q", "Q", "Q"]
    assert insertion.clamps == {}
    assert insertion.root("c") == insertion.root("r")


def test_relu6_behind_relu_folds_to_the_tighter_bounds() -> None:
    insertion = inserted("c = Conv(x, w) r = Relu(c) y = Clip(r, low, six)")
    assert summary(insertion) == ["Q", "n0_Conv", "n0_Conv"]
    assert insertion.clamps == {"y": (0.0, 6.0)}


def test_residual_add_with_relu_is_quantized_once_behind_the_relu() -> None:
    insertion = inserted("c = Conv(x, w) s = Add(c, x) y = Relu(s)")
    assert summary(insertion) == ["Q", "Q", "n1_Add"]
    assert list(insertion.quantized) == ["x", "c", "y"]


def test_add_of_float_tensors_stays_float() -> None:
    insertion = inserted("a = Softmax(x) z = Softmax(a) y = Add(a, z)")
    assert summary(insertion) == ["float"] * 3


def test_pooling_of_a_float_tensor_that_a_later_mul_wants_in_integers_runs_in_integers() -> None:
    squeeze_and_excite = (
        "c = Conv(x, w) h = Erf(c) p = GlobalAveragePool(h) "
        "e = Conv(p, w) s = Sigmoid(e) z = Mul(h, s) y = Conv(z, w)"
    )
    insertion = inserted(squeeze_and_excite)
    assert summary(insertion) == ["Q", "float", "Q", "Q", "Q", "Q", "Q"]


@pytest.mark.parametrize(
    "body",
    [
        "h = HardSwish(x) p = GlobalAveragePool(h) e = Conv(p, w) y = Softmax(h)",
        "h = HardSwish(x) p = GlobalAveragePool(h) e = Conv(h, w) y = Softmax(p)",
    ],
    ids=["its input is float only", "its result is read in float only"],
)
def test_pooling_stays_float_where_integers_would_be_made_for_it_alone(body: str) -> None:
    assert summary(inserted(body))[1] == "float"


@pytest.mark.parametrize(
    "node", ["Relu(h)", "Clip(h, low, six)", "MaxPool<kernel_shape=[1, 1]>(h)"]
)
def test_clamps_and_pools_of_float_tensors_stay_float_and_their_result_gets_integers(
    node: str,
) -> None:
    insertion = inserted(f"h = HardSwish(x) r = {node} y = Conv(r, w)")
    assert summary(insertion) == ["float", "float", "Q"]
    assert list(insertion.quantized) == ["r", "y"]


@pytest.mark.parametrize("node", ["Relu(x)", "MaxPool<kernel_shape=[1, 1]>(x)"])
def test_clamps_and_pools_of_a_graph_input_run_on_integers(node: str) -> None:
    assert summary(inserted(f"r = {node} y = Conv(r, w)")) == ["Q", "Q"]


def test_data_movement_between_float_nodes_stays_float() -> None:
    insertion = inserted("a = Softmax(x) t = Transpose(a) y = Softmax(t)")
    assert summary(insertion) == ["float"] * 3
    assert not insertion.quantized


def test_data_movement_before_a_conv_moves_integers() -> None:
    insertion = inserted("t = Transpose(x) y = Conv(t, w)")
    assert summary(insertion) == ["Q", "Q"]
    assert insertion.root("x") == insertion.root("t") != insertion.root("y")


def test_matmul_with_vector_bias_is_one_node() -> None:
    insertion = inserted("p = MatMul(x, m) y = Add(p, bias8)")
    assert summary(insertion) == ["Q", "n0_MatMul"]
    assert list(insertion.quantized) == ["x"]  # no integer node reads the result


def test_nor_is_it_two_where_integers_are_read() -> None:
    insertion = inserted("p = MatMul(x, m) s = Add(p, bias8) y = MatMul(s, m)")
    assert summary(insertion) == ["Q", "n0_MatMul", "Q"]
    assert list(insertion.quantized) == ["x", "s"]


def test_matmul_that_only_float_nodes_read_keeps_a_float_result() -> None:
    insertion = inserted("p = MatMul(x, m) y = Softmax(p)")
    decision = insertion.decisions["n0_MatMul"]
    assert isinstance(decision, Quantize)
    assert decision.results == ()
    assert list(insertion.quantized) == ["x"]


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
    insertion = placed_on(model, "portable")
    decision = insertion.decisions["inner"]
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
    insertion = inserted("c = Conv(x, w) d = Conv(c, w) y = Conv(d, w)", qconfig)
    assert summary(insertion) == ["Q", "float", "Q"]


def test_asked_for_operator_is_quantized_although_it_is_slow() -> None:
    body = "c = Conv(x, w) y = Softmax(c)"
    assert summary(inserted(body)) == ["Q", "float"]
    base = default_qconfig_mapping()
    asked = base.set_op_type("Softmax", base.for_node("n0_Conv", "Conv"))
    insertion = inserted(body, asked)
    assert summary(insertion) == ["Q", "Q"]
    assert insertion.ranges == {"y": OUTPUT_RANGE}


def test_range_of_wide_integers_is_observed() -> None:
    wide = QConfig(MinMaxObserver.with_args(dtype="uint16"), NarrowRangeObserver.with_args())
    asked = default_qconfig_mapping().set_op_type("Softmax", wide)
    insertion = inserted("c = Conv(x, w) y = Softmax(c)", asked)
    assert summary(insertion) == ["Q", "Q"]
    assert insertion.ranges == {}


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (NarrowRangeObserver.with_args(), "int8 weight within +-127"),
        (MinMaxObserver.with_args(dtype="quint8"), "uint8 weight,"),
    ],
)
def test_description_names_the_type_of_the_weight(weight: ObserverSpec, words: str) -> None:
    qconfig = QConfig(MinMaxObserver.with_args(), weight)
    insertion = inserted("y = Conv(x, w)", default_qconfig_mapping().set_global(qconfig))
    decision = insertion.decisions["n0_Conv"]
    assert isinstance(decision, Quantize)
    assert words in decision.how.words


@pytest.mark.parametrize("bounds", ["six, seven", "minus, minus"])
def test_clip_on_its_own_stays_float_where_its_bounds_leave_out_zero(bounds: str) -> None:
    clip = f"Clip(p, {bounds})"
    insertion = inserted(
        f"c = Conv(x, w) p = MaxPool<kernel_shape=[1,1]>(c) r = {clip} y = Conv(r, w)"
    )
    assert summary(insertion) == ["Q", "float", "float", "Q"]
    folded = inserted(f"p = Conv(x, w) r = {clip} y = Conv(r, w)")
    assert summary(folded) == ["Q", "n0_Conv", "Q"]


def test_data_movement_whose_result_no_integer_node_reads_stays_float() -> None:
    insertion = inserted("c = Conv(x, w) y = Transpose(c)")
    assert summary(insertion) == ["Q", "float"]
    both = inserted("i = Identity(x) s = Transpose(i) y = Conv(x, w)")
    assert summary(both) == ["float", "float", "Q"]


def test_data_movement_between_integer_nodes_stays_in_integers() -> None:
    gemm = inserted(
        "c = Conv(x, w) g = GlobalAveragePool(c) r = Reshape(g, shape) y = MatMul(r, m)"
    )
    assert summary(gemm) == ["Q"] * 4
    element = inserted("c = Conv(x, w) t = Transpose(c) y = Add(t, t)")
    assert summary(element) == ["Q"] * 3
    chosen = inserted("c = Conv(x, w) y = ArgMax(c)")
    assert summary(chosen) == ["Q", "Q"]


def test_tensor_left_float_by_the_qconfig_leaves_its_nodes_float() -> None:
    insertion = inserted(
        "c = Conv(x, w) y = Conv(c, w)", default_qconfig_mapping().set_tensor("c", None)
    )
    assert summary(insertion) == ["float", "float"]


def test_concat_input_with_other_readers_keeps_its_own_qparams() -> None:
    insertion = inserted(
        "a = Conv(x, w) c = Conv(x, w) k = Concat<axis=1>(a, c) p = Conv(a, w) y = Conv(k, w)"
    )
    assert insertion.root("c") == insertion.root("k") != insertion.root("a")
    assert "k" not in insertion.shared_outputs  # part of its data is observed nowhere else


def test_observer_of_a_tensor_is_the_qconfig_of_the_node_that_makes_it() -> None:
    mine = QConfig(
        MinMaxObserver.with_args(),
        MinMaxObserver.with_args(dtype="qint8", qscheme="per_tensor_symmetric"),
    )
    insertion = inserted(
        "c = Conv(x, w) y = Conv(c, w)", default_qconfig_mapping().set_node("n0_Conv", mine)
    )
    assert insertion.owners["c"] == ("n0_Conv", "Conv")
    assert insertion.owners["y"] == ("n1_Conv", "Conv")


@pytest.mark.parametrize("op", ["Conv(x, u)", "MatMul(x, u)"])
def test_conv_with_weight_computed_at_run_time_says_so(op: str) -> None:
    insertion = inserted(f"u = Softmax(z) y = {op}", inputs="float[1,4,8,8] x, float[4,4,1,1] z")
    decision = list(insertion.decisions.values())[1]
    if op.startswith("Conv"):
        assert isinstance(decision, Float)
        assert "run time" in decision.reason.words
    else:  # two activations
        assert isinstance(decision, Quantize)


def test_nodes_written_on_integers_want_an_integer_reader() -> None:
    assert summary(inserted("c = Conv(x, w) s = Sub(c, x) y = Conv(s, w)")) == ["Q"] * 3
    assert summary(inserted("c = Conv(x, w) y = Sub(c, x)")) == ["Q", "float"]
    assert summary(inserted("c = Conv(x, w) s = Sub(c, x) y = Erf(s)")) == ["Q", "float", "float"]
    chain = inserted("c = Conv(x, w) s = Sub(c, x) y = Tanh(s)")
    assert summary(chain) == ["Q", "float", "float"]
    assert "no integer node reads its result" in str(chain.decisions["n1_Sub"])


def test_a_relu_between_passes_the_demand_on() -> None:
    insertion = inserted("c = Conv(x, w) e = Elu(c) r = Relu(e) y = Conv(r, w)")
    assert "float" not in summary(insertion)


def test_a_node_written_on_integers_that_the_qconfig_names_needs_no_reader() -> None:
    named = default_qconfig_mapping().set_op_type("Tanh", default_qconfig_mapping().global_qconfig)
    assert summary(inserted("c = Conv(x, w) y = Tanh(c)", named)) == ["Q", "Q"]


# forms that are named


def formed(form: Precision, *op_types: str) -> QConfigMapping:
    """The default, with that form for these."""
    mapping = default_qconfig_mapping()
    for op_type in op_types:
        mapping = mapping.set_op_type(op_type, replace(onnxq_default_qconfig, precision=form))
    return mapping


def test_a_float_result_has_no_q_behind_it_and_takes_its_bias_alone_in() -> None:
    body = "p = MatMul(x, m) s = Add(p, bias8) r = Relu(s) y = MatMul(r, m)"
    insertion = inserted(body, formed(Precision.INT8_FLOAT_OUTPUT, "MatMul"), "float[4,8] x")
    assert summary(insertion) == ["Q", "n0_MatMul", "float", "Q"]
    assert list(insertion.quantized) == ["x", "r"]


def test_a_named_integer_has_integers_out_whoever_reads_them() -> None:
    insertion = inserted(
        "p = MatMul(x, m) y = Erf(p)", formed(Precision.INT8, "MatMul"), "float[4,8] x"
    )
    assert list(insertion.quantized) == ["x", "p"]


def test_a_conv_has_integers_out_whatever_is_asked() -> None:
    insertion = inserted("c = Conv(x, w) y = Relu(c)", formed(Precision.INT8_FLOAT_OUTPUT, "Conv"))
    assert summary(insertion) == ["Q", "n0_Conv"]


def test_a_named_float_stays_float() -> None:
    insertion = inserted("y = Conv(x, w)", formed(Precision.FLOAT, "Conv"))
    assert summary(insertion) == ["float"]


def test_nodes_that_stay_float_tell_the_conversions_that_integers_would_take() -> None:
    floats = inserted("y = Add(x, x2)", inputs="float[1,4,8,8] x, float[1,4,8,8] x2")
    assert "3 conversions in place of none" in str(floats.decisions["n0_Add"])
    idle = inserted("c = Conv(x, w) y = Tanh(c)")
    assert "take 1 conversion in place of 1" in str(idle.decisions["n1_Tanh"])
    moved = inserted("c = Conv(x, w) y = Transpose(c)")
    assert "take 1 conversion in place of 1" in str(moved.decisions["n1_Transpose"])
    unknown = inserted("c = Conv(x, w) y = RandomUniformLike(c)")
    assert "integers would take 2 conversions" in str(unknown.decisions["n1_RandomUniformLike"])
