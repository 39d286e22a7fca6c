from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq import reference
from onnxq.checking.differences import Unit
from onnxq.checking.predict import predict
from onnxq.errors import CalibrationError, QConfigError, ShapeError
from onnxq.targets.accumulation import SaturationMode
from tests.examples import ALL_INTEGERS, as_ir, images, model, network, weights

if TYPE_CHECKING:
    import onnx

    from onnxq.core.arrays import Array

make = helper.make_node
SAMPLES = {"x": images(8, 1)}


def quantized(target: str, source: onnx.ModelProto | None = None) -> ir.Model:
    float_model, samples = as_ir(source or network()), [{"x": images(16)}]
    made: ir.Model = onnxq.quantize(float_model, samples, qconfig=ALL_INTEGERS, target=target)
    return made


@pytest.fixture(scope="module")
def fast() -> ir.Model:
    """Weights of the full range."""
    return quantized("x86-vnni")


@pytest.fixture(scope="module")
def portable() -> ir.Model:
    return quantized("portable")


def lowest_weights() -> onnx.ModelProto:
    """QLinearConv, depthwise, 16 channels: all weights are -128, all integers of x 0."""
    constants: dict[str, Array] = {
        "s": np.float32(1) * np.ones((), np.float32),
        "xz": np.zeros((), np.uint8),
        "w": np.full((16, 1, 3, 3), -128, np.int8),
        "wz": np.zeros((), np.int8),
        "ys": np.full((), 65536, np.float32),
        "yz": np.full((), 128, np.uint8),
    }
    node = make("QLinearConv", ["x", "s", "xz", "w", "s", "wz", "ys", "yz"], ["y"], "dw", group=16)
    return model(
        [node],
        constants,
        {"x": ["N", 16, 5, 5]},
        {"y": 2},
        dtype=2,
    )


def test_portable_models_are_exact_on_every_machine(portable: ir.Model) -> None:
    found = predict(portable, SAMPLES)
    found.check()
    assert found.batches == 8
    assert not any(m.may_differ for m in found.machines)
    assert {name for m in found.machines for name in m.targets} == {
        t.name for t in onnxq.targets.all_targets()
    } - {"portable"}


def test_full_range_weights_saturate_on_avx2_alone(fast: ir.Model) -> None:
    found = predict(fast, SAMPLES)
    assert found.differing == ("x86-avx2", "x86-avx512")
    assert not found.on("x86-vnni").may_differ
    machine = found.on("x86-avx2")
    assert machine.differing_layers
    for layer in machine.differing_layers:
        assert layer.possible
        assert set(layer.overflowing) <= set(layer.channels)
        assert layer.overflows >= layer.changed > 0
        assert layer.pairs[0].count >= layer.pairs[-1].count > 0


def test_outputs_are_those_of_the_machines_evaluator(fast: ir.Model) -> None:
    exact, saturating = (
        reference.evaluator(fast, saturation_mode=kind).run(None, SAMPLES)[0]
        for kind in (SaturationMode.EXACT, SaturationMode.SATURATES)
    )
    (output,) = (
        predict(fast, onnxq.Samples(SAMPLES, batch_size=4), "x86-avx2").on("x86-avx2").outputs
    )
    assert output.elements == exact.size
    assert output.differing == np.count_nonzero(exact != saturating) > 0


def test_results_do_not_depend_on_batches_and_threads(fast: ir.Model) -> None:
    one, other = (
        predict(fast, onnxq.Samples(SAMPLES, batch_size=size), "x86-avx2", threads=threads).machines
        for size, threads in ((8, 2), (2, 1))
    )
    assert one == other


def test_weights_alone_say_what_can_differ(fast: ir.Model, portable: ir.Model) -> None:
    found = predict(fast, machines=["x86-avx2", "x86-vnni"])
    assert (found.batches, found.differing) == (0, ())
    assert found.on("x86-avx2").risky_layers
    assert not found.on("x86-vnni").may_differ
    assert not predict(portable, machines="portable").on("x86-avx2").may_differ


def test_lowest_weights_wrap_in_depthwise_convolutions_on_arm() -> None:
    x = {"x": np.zeros((1, 16, 5, 5), np.uint8)}
    found = predict(ir.from_proto(lowest_weights()), x)
    assert set(found.differing) == {"arm64", "arm64-dot", "arm64-i8mm"}
    (layer,) = found.on("arm64-dot").layers
    assert (layer.name, layer.possible, layer.overflows) == ("dw", 64, 16 * 9 * 4)
    assert {(p.first, p.second) for p in layer.pairs} == {(0, 2), (1, 3), (4, 6), (5, 7)}
    assert (layer.differing, layer.largest, layer.largest_change) == (144, 4, 65536)


def test_sums_without_fused_multiply_adds_are_predicted() -> None:
    """Scales for which 931 of 65,536 pairs of integers are rounded otherwise."""
    constants: dict[str, Array] = {
        **{n: np.float32(s) * np.ones((), np.float32) for n, s in
           (("as", 0.0481), ("bs", 0.0845), ("cs", 0.0468))},
        **{n: np.full((), z, np.uint8) for n, z in (("az", 79), ("bz", 164), ("cz", 140))},
    }  # fmt: skip
    inputs = ["a", "as", "az", "b", "bs", "bz", "cs", "cz"]
    node = make("QLinearAdd", inputs, ["c"], "sum", domain="com.microsoft")
    proto = model([node], constants, {"a": ["N", 256], "b": ["N", 256]}, {"c": 2}, dtype=2)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    a, b = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    found = predict(
        ir.from_proto(proto),
        onnxq.Samples({"a": a, "b": b}, batch_size=64),
        ["x86-sse", "x86-avx2"],
    )
    assert found.differing == ("x86-sse",)
    (layer,) = found.on("x86-sse").layers
    assert (layer.overflows, layer.largest, layer.pairs_of) == (931, 1, "integers")


def test_weights_that_are_no_constants_are_not_known() -> None:
    node = make("MatMulInteger", ["a", "b"], ["y"], "late")
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("a", 2, ["N", 40]),
            helper.make_tensor_value_info("b", 3, [40, 5]),
        ],
        [helper.make_tensor_value_info("y", 6, None)],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    found = predict(ir.from_proto(proto))
    assert [layer.possible for layer in found.on("x86-avx2").layers] == [None]
    assert [layer.possible for layer in found.on("arm64").layers] == [None]
    assert [layer.possible for layer in found.on("arm64-dot").layers] == [0]


def test_nodes_that_compute_in_float_are_listed_with_what_is_behind_them(fast: ir.Model) -> None:
    found = predict(fast)
    assert found.floats == {"Softmax": 1, "GlobalAveragePool": 1}
    assert found.behind_floats[-1] == "gemm"
    assert "conv2" not in found.behind_floats
    assert found.float_outputs == ("y",)


def test_logits_differ_in_steps_of_the_scale_that_they_were_dequantized_with() -> None:
    nodes = [*network().graph.node]
    assert nodes[-1].op_type == "Gemm"
    constants = {w.name: numpy_helper.to_array(w) for w in network().graph.initializer}
    nodes[-1].output[0] = "logits"
    more = [make("Relu", ["logits"], ["positive"], "relu"), make("Identity", ["positive"], ["y"])]
    source = model([*nodes, *more], constants, {"x": ["N", 3, 8, 8]})
    (output,) = predict(quantized("x86-vnni", source), SAMPLES, "x86-avx2").machines[0].outputs
    assert output.unit == Unit.SCALE
    assert 0 < output.largest < 256


def test_floats_without_a_scale_differ_by_numbers_beside_their_size(fast: ir.Model) -> None:
    exact, saturating = (
        reference.evaluator(fast, saturation_mode=kind).run(None, SAMPLES)[0]
        for kind in (SaturationMode.EXACT, SaturationMode.SATURATES)
    )
    (output,) = (
        predict(fast, onnxq.Samples(SAMPLES, batch_size=8), "x86-avx2").on("x86-avx2").outputs
    )
    assert output.unit == Unit.ULP
    assert output.error == pytest.approx(float(np.abs(exact - saturating).max()), rel=1e-6)
    assert output.size == float(np.abs(exact).max())


def test_a_kernel_whose_inputs_are_floats_is_refused() -> None:
    wrong = onnxq.quantize(network(), {"x": images(2)}, format="qoperator", check=onnxq.Check.NONE)
    conv = next(node for node in wrong.graph if node.op_type == "QLinearConv")
    conv.replace_input_with(3, conv.inputs[4])
    with pytest.raises(ShapeError, match="an integer kernel reads an array of float32"):
        predict(wrong, {"x": images(2)})


def test_unknown_machines_and_empty_samples_are_refused(fast: ir.Model) -> None:
    with pytest.raises(QConfigError, match=r"'avx' is not known.*'all' stands for every"):
        predict(fast, SAMPLES, ["x86-avx2", "avx"])
    with pytest.raises(CalibrationError):
        predict(fast, [], "x86-avx2")


@pytest.mark.parametrize("none", [[], (), {}, iter(())])
def test_a_prediction_names_a_machine(fast: ir.Model, none: Any) -> None:
    with pytest.raises(QConfigError, match=r"name none.*at least one name that `onnxq targets`"):
        predict(fast, SAMPLES, none)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"machines": 3}, QConfigError, r"machines are an int \(3\); wanted 'all', a name"),
        ({"machines": None}, QConfigError, r"machines are None \(None\); wanted 'all'"),
        ({"machines": b"arm64"}, QConfigError, r"machines are a bytes .*; wanted 'all', a name"),
        ({"machines": [3]}, QConfigError, r"target is an int \(3\); wanted a name"),
        ({"machines": "arm64,x86-sse"}, QConfigError, r"or a list: \['arm64', 'x86-sse'\]"),
    ],
)
def test_arguments_of_another_type_are_refused(
    fast: ir.Model, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        predict(fast, SAMPLES, **options)


def test_layers_in_bodies_are_counted() -> None:
    w = np.full((32, 4), 127, np.int8)
    body = helper.make_graph(
        [make("MatMulInteger", ["x", "w"], ["inner"], "inside")],
        "body",
        [],
        [helper.make_tensor_value_info("inner", 6, None)],
        [numpy_helper.from_array(w, "w")],
    )
    node = make("If", ["yes"], ["y"], "if", then_branch=body, else_branch=body)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", 2, ["N", 32])],
        [helper.make_tensor_value_info("y", 6, None)],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    found = predict(ir.from_proto(proto), {"x": np.full((2, 32), 255, np.uint8)}, "x86-avx2")
    layers = found.on("x86-avx2").layers
    assert sum(layer.overflows for layer in layers) == 2 * 16 * 4
    assert found.on("x86-avx2").outputs[0].differing == 8


def test_state_is_each_machines_own() -> None:
    w = weights(1, 16, 16)
    source = model(
        [make("MatMul", ["x", "w"], ["m"], "mm"), make("Tanh", ["m"], ["y"], "tanh")],
        {"w": w},
        {"x": ["N", 16]},
    )
    x = np.random.default_rng(0).standard_normal((8, 1, 16)).astype(np.float32)
    made = onnxq.quantize(as_ir(source), [{"x": row} for row in x], target="x86-vnni")
    found = predict(made, onnxq.Samples([{}, {}, {"x": x[0]}], feedback={"y": "x"}), "x86-avx2")
    assert found.batches == 3


def test_int8_activations_stay_int8_on_arm_and_become_uint8_on_x86() -> None:
    w = np.full((8, 16, 1, 1), -128, np.int8)
    constants: dict[str, Array] = {
        "s": np.full((), 0.02, np.float32),
        "xz": np.full((), -128, np.int8),
        "w": w,
        "wz": np.zeros((), np.int8),
        "ys": np.full((), 0.35, np.float32),
        "yz": np.zeros((), np.int8),
    }
    nodes = [
        make("QuantizeLinear", ["x", "s", "xz"], ["xq"]),
        make("DequantizeLinear", ["xq", "s", "xz"], ["xd"]),
        make("DequantizeLinear", ["w", "s", "wz"], ["wd"]),
        make("Conv", ["xd", "wd"], ["c"], "conv"),
        make("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        make("DequantizeLinear", ["cq", "ys", "yz"], ["y"]),
    ]
    proto = model(nodes, constants, {"x": ["N", 16, 4, 4]})
    x = {"x": np.random.default_rng(0).uniform(0, 5, (1, 16, 4, 4)).astype(np.float32)}
    found = predict(ir.from_proto(proto), x)
    assert found.differing == ("x86-avx2", "x86-avx512")
    assert not found.on("arm64").may_differ


def test_integers_that_floats_decide_are_counted_and_those_next_to_a_tie() -> None:
    """At scale 1/2, Softmax of four equal numbers is 1/4: a tie of integers 0 and 1."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], "softmax"),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["y"], "q"),
    ]
    constants: dict[str, Array] = {"s": np.array(0.5, np.float32), "z": np.array(0, np.uint8)}
    source = model(nodes, constants, {"x": ["N", 4]}, {"y": TensorProto.UINT8})
    x = np.array([[1, 1, 1, 1], [0, 1, 2, 3]], np.float32)
    found = predict(source, [{"x": x}])
    assert found.behind_floats == ("q",)
    assert (found.decided, found.near_ties) == (8, 4)
