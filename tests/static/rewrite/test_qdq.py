from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import pytest

from onnxq.observers import PerChannelMinMaxObserver, default_observer
from onnxq.operator import Float
from onnxq.ort import runtime
from onnxq.qconfig import QConfig, QConfigMapping, default_qconfig_mapping
from onnxq.static.calibrate import calibrate
from onnxq.static.plan import Plan, plan
from onnxq.static.prepare import prepare
from onnxq.static.reasons import NeverObserved
from onnxq.static.rewrite import rewrite
from tests import this_machine
from tests.golden_models import GRAPHS, conv_model, data

if TYPE_CHECKING:
    from onnxq.core.arrays import Singles
    from onnxq.static.prepared import Prepared

GOLDEN = Path(__file__).parent.parent.parent / "golden"


def quantized(
    model: ir.Model, qconfig: QConfigMapping | None = None
) -> tuple[ir.Model, Plan, Prepared]:
    prepared = prepare(model, qconfig, "x86-vnni")
    made = plan(prepared, calibrate(prepared, data()))
    return rewrite(prepared, made), made, prepared


def kernels(model: ir.Model) -> list[str]:
    """op types in ONNX Runtime's optimized graph, without layout changes."""
    return sorted(
        n.op_type for n in runtime.optimized_graph(model).graph if n.op_type != "Transpose"
    )


def outputs(model: ir.Model, batch: dict[str, Singles]) -> list[Singles]:
    return [np.asarray(y, np.float32) for y in this_machine.run_exactly(model, batch)]


def worst_lsb(model: ir.Model, integer: ir.Model, made: Plan, output: str = "y") -> float:
    """Largest difference of the output, in multiples of its scale."""
    batch = data(9)[-1]
    difference = np.abs(outputs(model, batch)[0] - outputs(integer, batch)[0]).max()
    return float(difference / made.tensors[output].scale)


def text(model: ir.Model) -> str:
    """Nodes only, one a line: what a reviewer wants to see in a diff."""
    lines = []
    for node in model.graph:
        inputs = ", ".join(v.name or "?" if v is not None else "-" for v in node.inputs)
        lines.append(f"{', '.join(v.name or '?' for v in node.outputs)} = {node.op_type}({inputs})")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_graph_is_as_reviewed(name: str) -> None:
    integer, _, _ = quantized(conv_model(GRAPHS[name]))
    golden = GOLDEN / f"qdq_{name}.txt"
    assert text(integer) == golden.read_text(), f"changed; review it, then write it to {golden}"


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_result_is_near_float(name: str) -> None:
    model = conv_model(GRAPHS[name])
    integer, made, _ = quantized(model)
    # each requantization is off by half an LSB, and HistogramObserver may clip; 8 channels of
    # gain 1
    assert worst_lsb(model, integer, made) < 24


def test_every_conv_and_add_runs_in_integers() -> None:
    integer, _, _ = quantized(conv_model(GRAPHS["residual"]))
    assert kernels(integer) == [
        "DequantizeLinear", "QLinearAdd", "QLinearConv", "QLinearConv", "QuantizeLinear",
    ]  # fmt: skip


def test_float_node_between_integer_nodes_stays_float_in_onnxruntime() -> None:
    integer, _, _ = quantized(conv_model(GRAPHS["float_between"]))
    assert "AveragePool" in kernels(integer)
    assert "QLinearAveragePool" not in kernels(integer)


def test_conv_left_float_is_not_quantized_behind_the_users_back() -> None:
    body = "c = Conv(x, w) d = Conv(c, v) y = Conv(d, w)"
    model = conv_model(body)
    name = [n.name for n in prepare(model).model.graph][1]
    assert name
    integer, _, _ = quantized(model, default_qconfig_mapping().set_node(name, None))
    found = kernels(integer)
    assert found.count("QLinearConv") == 2
    assert sum(op in found for op in ("Conv", "FusedConv")) == 1


def test_relu6_needs_no_clip_where_the_scale_fits() -> None:
    integer, made, _ = quantized(conv_model("c = Conv(x, w) y = Clip(c, zero, six)"))
    integers = made.integer_bounds.get("y", (0, 255))
    assert ("Clip" in [n.op_type for n in integer.graph]) == (integers != (0, 255))
    assert made.tensors["y"].zero_point == 0


def test_clip_on_integers_where_the_observer_reaches_further() -> None:
    base = default_qconfig_mapping()
    conv = base.for_node("", "Conv")
    assert conv is not None
    # default_observer has reduce_range: integers 128..255 would be above 6
    mine = QConfig(default_observer, conv.weight)
    model = conv_model("c = Conv(x, w) y = Clip(c, zero, six)")
    integer, made, _ = quantized(model, base.set_global(mine))
    assert made.integer_bounds["y"][1] < 255
    assert (
        outputs(integer, {"x": data()[0]["x"] * 100})[0].max() <= 6.0 + made.tensors["y"].scale / 2
    )
    assert kernels(integer).count("QLinearConv") == 1


def test_prepared_model_is_untouched() -> None:
    prepared = prepare(conv_model(GRAPHS["residual"]))
    before = text(prepared.model)
    rewrite(prepared, plan(prepared, calibrate(prepared, data())))
    assert text(prepared.model) == before


def test_graph_inputs_and_outputs_keep_their_names() -> None:
    integer, _, _ = quantized(conv_model(GRAPHS["conv_relu"]))
    assert [v.name for v in integer.graph.inputs] == ["x"]
    assert [v.name for v in integer.graph.outputs] == ["y"]


def test_tied_weight_is_stored_once() -> None:
    integer, _, _ = quantized(conv_model(GRAPHS["shared_weight"]))
    weights = [
        v for v in integer.graph.initializers.values() if v.shape is not None and len(v.shape) == 4
    ]
    assert [v.name for v in weights] == ["w_quantized"]


def test_weights_are_never_minus_128() -> None:
    base = default_qconfig_mapping()
    weight = PerChannelMinMaxObserver.with_args(
        dtype="qint8", qscheme="per_channel_symmetric", ch_axis=0
    )
    conv = base.for_node("", "Conv")
    assert conv is not None
    qconfig = base.set_global(QConfig(conv.activation, weight))
    negative = np.random.default_rng(2).standard_normal((8, 8, 1, 1)).astype(np.float32)
    # torch's scale is absmax / 127.5 = 1 / 16, and rint(-127.5) = -128
    negative[:, 0] = -127.5 / 16
    integer, made, _ = quantized(conv_model("y = Conv(x, w)", constants={"w": negative}), qconfig)
    value = integer.graph.initializers["w_quantized"].const_value
    assert value is not None
    assert value.numpy().min() == -127
    assert any("8 of 64 integers of -128 were clipped" in note for note in made.notes)


def test_bias_that_leaves_int32_raises_the_weight_scale_and_says_so() -> None:
    tiny = np.full((8, 8, 1, 1), 1e-12, np.float32)
    model = conv_model("y = Conv(x, w, b)", constants={"w": tiny})
    integer, made, _ = quantized(model)
    assert any("raised" in note for note in made.notes)
    assert worst_lsb(model, integer, made) <= 1


def test_branches_of_if_are_quantized() -> None:
    then = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 17]> t () => (float[N,8,6,6] p)'
        " { q = Conv(x, w) p = Relu(q) }"
    ).graph
    other = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 17]> e () => (float[N,8,6,6] r) { r = Conv(x, w) }'
    ).graph
    rng = np.random.default_rng(0)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["N", 8, 6, 6]))
    flag = ir.Value(name="flag", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    w = ir.Value(
        name="w",
        const_value=ir.Tensor(rng.standard_normal((8, 8, 1, 1)).astype(np.float32), name="w"),
    )
    w.type, w.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([8, 8, 1, 1])
    for graph in (then, other):
        for node in graph:
            for i, value in enumerate(node.inputs):
                if value is not None and value.name in ("x", "w"):
                    node.replace_input_with(i, x if value.name == "x" else w)
    branch = ir.node(
        "If",
        [flag],
        {
            "then_branch": ir.AttrGraph("then_branch", then),
            "else_branch": ir.AttrGraph("else_branch", other),
        },
    )
    y = branch.outputs[0]
    y.name, y.type, y.shape = "y", ir.TensorType(ir.DataType.FLOAT), ir.Shape(["N", 8, 6, 6])
    model = ir.Model(
        ir.Graph([x, flag], [y], nodes=[branch], initializers=[w], opset_imports={"": 17}),
        ir_version=10,
    )
    batches = [{**batch, "flag": np.array(i % 2 == 0)} for i, batch in enumerate(data())]
    prepared = prepare(model, None, "x86-vnni")
    integer = rewrite(prepared, plan(prepared, calibrate(prepared, batches)))
    for batch in batches[:2]:
        got = this_machine.run_exactly(integer, batch)[0]
        wanted = runtime.open_session(model).run(batch)[0]
        assert (
            np.abs(np.subtract(got, wanted)).max() < 0.2
        )  # outputs reach about 10: a step is about 0.08

    one_sided = rewrite(prepared, plan(prepared, calibrate(prepared, batches[:1])))
    runtime.open_session(one_sided)
    reasons = [
        d.reason
        for d in plan(prepared, calibrate(prepared, batches[:1])).decisions.values()
        if isinstance(d, Float)
    ]
    assert any(isinstance(reason, NeverObserved) for reason in reasons)


def test_pad_writes_the_zero_point() -> None:
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    model = conv_model("c = Conv(x, w) p = Pad(c, pads) y = Conv(p, v)", constants={"pads": pads})
    integer, made, _ = quantized(model)
    assert made.tensors["c"].zero_point != 0
    assert worst_lsb(model, integer, made) < 24
    assert kernels(integer).count("QLinearConv") == 2


def test_output_of_a_integers_node_that_is_no_integer_keeps_its_name() -> None:
    model = conv_model(
        "c = Conv(x, w) p, i = MaxPool<kernel_shape=[2,2]>(c) y = Conv(p, v)",
        "float[N,8,5,5] y, int64[N,8,5,5] i",
    )
    integer, _, prepared = quantized(model)
    assert [v.name for v in integer.graph.outputs] == ["y", "i"]
    runtime.open_session(integer)
    assert set(prepared.decisions) == {node.name for node in prepared.model.graph}


@pytest.mark.parametrize("large", [1.0, 1e7])
@pytest.mark.parametrize(("attributes", "shape"), [("", (8, 8, 2, 2)), ("group=2, ", (8, 4, 2, 2))])
def test_a_transposed_convolution_is_written_on_integers_with_weight_bias_and_relu(
    attributes: str, shape: tuple[int, ...], large: float
) -> None:
    rng = np.random.default_rng(3)
    bias = rng.standard_normal(8).astype(np.float32)
    bias[5] = large  # 1e7 leaves int32 unless the weight scale is raised
    constants = {"t": rng.standard_normal(shape).astype(np.float32), "b": bias}
    model = conv_model(
        f"c = Conv(x, w) u = ConvTranspose<{attributes}strides=[2,2]>(c, t, b) y = Relu(u)",
        constants=constants,
    )
    integer, made, _ = quantized(model)
    ops = [node.op_type for node in integer.graph]
    assert "ConvTranspose" not in ops
    assert "Relu" not in ops
    assert ops.count("QuantizeLinear") == 2  # x and c: the transposed convolution writes integers
    assert "t_quantized" not in integer.graph.initializers  # rearranged, so not stored twice
    assert any("raised" in note for note in made.notes) == (large > 1)
    got, wanted = (outputs(m, data(1)[0])[0] for m in (integer, model))
    # half an LSB each from x, w, c, t and y, amplified by sums over 8 channels of both; a bias or
    # scale of another channel is off by ten steps and more
    assert np.abs(got - wanted).max() <= 4 * made.tensors["y"].scale


def test_a_transposed_convolution_that_is_called_twice_keeps_one_weight() -> None:
    weight = np.random.default_rng(0).standard_normal((8, 8, 4, 4)).astype(np.float32)
    model = conv_model(
        "a = ConvTranspose(x, t) r = Relu(x) c = ConvTranspose(r, t) y = Concat<axis=1>(a, c)",
        "float[N,16,H,W] y",
        {"t": weight},
    )
    integer, _, _ = quantized(model)
    first, second = (n for n in integer.graph if n.op_type == "QLinearConv")
    assert first.inputs[3] is second.inputs[3]
    big = [v for v in integer.graph.initializers.values() if v.const_value.nbytes >= weight.size]  # type: ignore[union-attr]  # initializers have values
    assert len(big) == 1


def test_depthwise_transposed_convolutions_read_and_make_a_range_per_channel() -> None:
    rng = np.random.default_rng(4)
    spread = np.logspace(-2, 0, 8).astype(np.float32)
    weights = rng.standard_normal((8, 8, 1, 1)).astype(np.float32)
    constants = {
        "w": weights * spread.reshape(8, 1, 1, 1),
        "t": rng.standard_normal((8, 1, 2, 2)).astype(np.float32) / spread.reshape(8, 1, 1, 1),
        "d": rng.standard_normal((8, 1, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32),
    }
    model = conv_model(
        "c = Conv(x, w) r = Relu(c) t1 = ConvTranspose<group=8, strides=[2,2]>(r, t, b)"
        " s = Relu(t1) y = Conv<group=8>(s, d)",
        constants=constants,
    )
    integer, made, _ = quantized(model)
    assert set(made.channel_scales) == {"r", "s"}
    # channels that a common scale would leave an integer or two come back at full size in t
    assert worst_lsb(model, integer, made) <= 4


def test_a_batch_normalization_that_stayed_is_written_on_integers_with_its_relu() -> None:
    rng = np.random.default_rng(5)
    constants = {name: rng.standard_normal(8).astype(np.float32) for name in ("g", "h", "m")}
    constants["v2"] = rng.uniform(0.5, 2, 8).astype(np.float32)
    model = conv_model(
        "c = Conv(x, w) r = Relu(c) n = BatchNormalization(r, g, h, m, v2) s = Relu(n)"
        " y = Conv(s, v)",
        constants=constants,
    )
    integer, made, _ = quantized(model)
    ops = [node.op_type for node in integer.graph]
    assert "BatchNormalization" not in ops
    assert "Relu" not in ops
    assert not {"g", "h", "m", "v2"} & set(integer.graph.initializers)
    assert kernels(integer).count("QLinearConv") == 3
    assert worst_lsb(model, integer, made) <= 4


def test_a_float_sum_ahead_of_a_layer_normalization_is_not_fused_with_it() -> None:
    model = conv_model(
        "c = Conv(x, w) r = Reshape(c, flat) s = Add(r, r) l = LayerNormalization(s, g)"
        " t = Reshape(l, back) y = Conv(t, v)",
        constants={
            "flat": np.array([0, 8, 36]),
            "back": np.array([0, 8, 6, 6]),
            "g": np.ones(36, np.float32),
        },
    )
    qconfig = default_qconfig_mapping().set_op_type("Add", None)
    integer, _, prepared = quantized(model, qconfig)
    assert "Add" in {node.op_type for node in prepared.model.graph}
    assert {"Sum", "LayerNormalization"} <= set(kernels(integer))
