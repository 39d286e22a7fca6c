from __future__ import annotations

import dataclasses
import functools
import json
import re
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq import catalog, reference
from onnxq.checking.cross_check import cross_check
from onnxq.checking.cross_findings import CrossFindings, Unchecked
from onnxq.errors import CalibrationError, ModelError, QConfigError, VerificationError
from onnxq.operator import Precision
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.ort.target_here import target_here
from onnxq.qconfig import QConfigDynamic, default_dynamic_qconfig, float16_dynamic_qconfig
from onnxq.reference.float_nodes import FloatNodes
from onnxq.targets import find
from onnxq.targets.accumulation import SaturationMode
from tests.dynamic_models import parsed
from tests.dynamic_models import quantized as dynamic
from tests.examples import as_ir, images, model, network, quantized_matmul, weights
from tests.this_machine import SATURATES, kernel_called_here

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from onnxq.core.arrays import Array

make = helper.make_node


def convolutions() -> onnx.ModelProto:
    """Conv, Relu, Conv, Add, GlobalAveragePool, Flatten, Gemm."""
    return model(
        [
            make("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1] * 4),
            make("Relu", ["c1"], ["r1"], "relu1"),
            make("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1] * 4),
            make("Add", ["r1", "c2"], ["s"], "add"),
            make("GlobalAveragePool", ["s"], ["g"], "mean"),
            make("Flatten", ["g"], ["f"], "flatten"),
            make("Gemm", ["f", "w3"], ["y"], "gemm"),
        ],
        {"w1": weights(1, 8, 3, 3, 3), "w2": weights(3, 8, 8, 3, 3), "w3": weights(4, 8, 10)},
        {"x": ["N", 3, 8, 8]},
    )


@pytest.fixture(scope="module")
def quantized() -> ir.Model:
    return onnxq.quantize(as_ir(convolutions()), [{"x": images(16)}])


def alter(monkeypatch: pytest.MonkeyPatch, op_type: str, domain: str) -> None:
    """From now on the kernel is off by one everywhere."""
    operator = catalog.find_integer(op_type, domain)
    assert operator is not None
    name = kernel_called_here(operator)
    kernel = getattr(operator, name)

    def broken(*arguments: object) -> tuple[Array, ...]:
        y, *others = kernel(*arguments)
        return y ^ np.array(1, y.dtype), *others

    monkeypatch.setattr(operator, name, broken)


# --- what agrees


def test_integers_agree_node_by_node_and_end_to_end(quantized: ir.Model) -> None:
    findings = cross_check(quantized, onnxq.Samples({"x": images(8, 1)}, batch_size=4))
    findings.check()
    assert findings.batches == 2
    assert {n.op_type for n in findings.nodes} >= {"QLinearConv", "QLinearAdd", "QGemm"}
    assert {n.kernel for n in findings.nodes} == {"onnxq"}
    assert findings.differing == 0
    assert (findings.unchecked, findings.floats, findings.instrumented) == ((), (), ())
    assert [(o.name, o.elements, o.differing) for o in findings.outputs] == [("y", 80, 0)]
    assert findings.first_difference == ""


def test_weights_are_computed_once_and_the_callers_model_keeps_its_own(
    quantized: ir.Model,
) -> None:
    """Two sessions, the reference and the hash read them."""
    mine = quantized.clone()
    calls = []

    def read(tensor: ir.TensorProtocol) -> ir.Tensor[Array]:
        calls.append(str(tensor.name))
        return ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=tensor.name)

    for value in mine.graph.initializers.values():
        tensor = value.const_value
        assert tensor is not None
        lazy, shape = functools.partial(read, tensor), ir.Shape(tensor.shape.numpy())
        value.const_value = ir.LazyTensor(lazy, tensor.dtype, shape, name=tensor.name)
    before = [value.const_value for value in mine.graph.initializers.values()]
    cross_check(mine, [{"x": images(2)}]).check()
    assert [value.const_value for value in mine.graph.initializers.values()] == before
    assert sorted(calls) == sorted(mine.graph.initializers)


def test_every_integer_node_of_the_optimized_graph_is_listed(quantized: ir.Model) -> None:
    findings = cross_check(quantized, onnxq.Samples({"x": images(2)}, batch_size=2))
    uses = runtime.integer_nodes(runtime.optimized_graph(quantized))
    assert [n.name for n in findings.nodes] == [use.name for use in uses]
    first = findings.nodes[0]
    assert (first.op_type, first.elements) == ("QuantizeLinear", 2 * 3 * 8 * 8)


def test_float_nodes_are_listed_and_not_compared() -> None:
    mixed = onnxq.quantize(as_ir(network()), [{"x": images(16)}])
    findings = cross_check(mixed, {"x": images(4)})
    assert "Softmax" in {n.op_type for n in findings.floats}
    assert "Softmax" not in {n.op_type for n in findings.nodes}
    assert findings.differing == 0


def test_dynamic_and_float_results_are_compared_in_ulps() -> None:
    proto = quantized_matmul(np.array(3, np.uint8), requantized=False)
    findings = cross_check(proto, {"x": weights(0, 4, 8)})
    (matmul,) = [n for n in findings.nodes if "MatMul" in n.op_type]
    assert matmul.unit == "ulps"
    findings.check()


def test_a_dequantized_output_is_compared_in_steps_of_its_scale() -> None:
    findings = cross_check(quantized_matmul(np.array(3, np.uint8)), {"x": weights(0, 4, 8)})
    assert findings.outputs[0].unit == "LSB of its scale"
    findings.check()


def test_qoperator_models_agree() -> None:
    slots = ["x", "s", "z", "w", "s", "wz", "s", "z"]
    proto = model(
        [make("QLinearConv", slots, ["y"], "conv")],
        {
            "s": np.array(0.05, np.float32),
            "z": np.array(9, np.uint8),
            "w": np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3),
            "wz": np.array(0, np.int8),
        },
        {"x": ["N", 3, 8, 8]},
        opset=21,
        dtype=TensorProto.UINT8,
    )
    x = np.random.default_rng(0).integers(0, 255, (4, 3, 8, 8), np.uint8)
    findings = cross_check(proto, {"x": x})
    findings.check()
    assert findings.outputs[0].unit == "LSB"


def around_float(*nodes: onnx.NodeProto, opset: int = 18) -> onnx.ModelProto:
    """Float nodes from f to g between DequantizeLinear and QuantizeLinear, and behind them."""
    constants: dict[str, Array] = {
        "s": np.array(0.02, np.float32),
        "z": np.array(128, np.uint8),
        "w": weights(1, 8, 8),
        "one": np.ones(8, np.float32),
    }
    around = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        make("DequantizeLinear", ["q", "s", "z"], ["f"], "dq"),
        *nodes,
        make("QuantizeLinear", ["g", "s", "z"], ["gq"], "gq"),
        make("DequantizeLinear", ["gq", "s", "z"], ["gd"], "gdq"),
        make("Softmax", ["gd"], ["y"], "softmax"),
    ]
    proto = model(around, constants, {"x": ["N", 64, 8]}, {"y": 1, "g": 1}, opset=opset)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


@pytest.mark.parametrize(
    "nodes",
    [
        [make("Softmax", ["f"], ["g"], "node")],
        [make("Tanh", ["f"], ["g"], "node")],
        [make("Exp", ["f"], ["g"], "node")],
        [make("MatMul", ["f", "w"], ["g"], "node")],
        [make("LpNormalization", ["f"], ["g"], "node", p=2)],
        [make("LayerNormalization", ["f", "one"], ["g"], "node")],
        [make("QuickGelu", ["f"], ["g"], "node", domain="com.microsoft", alpha=1.5)],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_float_nodes_round_as_onnx_runtime_does(nodes: list[onnx.NodeProto]) -> None:
    """onnx's own implementation is ulps away, which makes other integers of ties."""
    findings = cross_check(
        around_float(*nodes), onnxq.Samples({"x": 3 * weights(0, 64, 64, 8)}, batch_size=16)
    )
    findings.check()
    assert {n.name for n in findings.floats} >= {"node", "softmax"}


def scale_floats(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """From now on the evaluator's float nodes are that far from ONNX Runtime's."""
    alone = FloatNodes.__call__

    def fused(
        self: FloatNodes, node: onnx.NodeProto, opsets: Mapping[str, int]
    ) -> reference.RunNode:
        run = alone(self, node, opsets)
        return lambda inputs: [np.multiply(y, y.dtype.type(factor)) for y in run(inputs)]

    monkeypatch.setattr(FloatNodes, "__call__", fused)


def test_last_digits_behind_float_nodes_are_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each float node is one or two ulps off here, as ONNX Runtime's fusions are."""
    scale_floats(monkeypatch, 1 + 2**-23)
    proto = around_float(make("Exp", ["f"], ["g"], "exp"))
    findings = cross_check(proto, onnxq.Samples({"x": weights(0, 8, 64, 8)}, batch_size=8))
    assert [findings.is_rounding(o) for o in findings.outputs] == [True, True]
    assert findings.differing > 0
    findings.check()
    with pytest.raises(VerificationError, match="output 'y'"):
        findings.check(max_output_lsb=0)


def test_digits_behind_float_nodes_do_not_hide_an_integer_that_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale_floats(monkeypatch, 1 + 2**-23)
    alter(monkeypatch, "QuantizeLinear", "")
    proto = around_float(make("Exp", ["f"], ["g"], "exp"))
    findings = cross_check(proto, onnxq.Samples({"x": weights(0, 8, 64, 8)}, batch_size=8))
    assert not any(findings.is_rounding(o) for o in findings.outputs)
    with pytest.raises(VerificationError, match="QuantizeLinear"):
        findings.check()


def test_float16_outputs_have_no_rounding() -> None:
    """16 of its ulps are more than an integer of 8 bits."""
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        make("DequantizeLinear", ["q", "s", "z"], ["f"], "dq"),
        make("Softmax", ["f"], ["p"], "softmax"),
        make("Cast", ["p"], ["y"], "half", to=TensorProto.FLOAT16),
    ]
    constants: dict[str, Array] = {"s": np.array(0.02, np.float32), "z": np.array(128, np.uint8)}
    outputs = {"y": TensorProto.FLOAT16}
    proto = model(nodes, constants, {"x": ["N", 8]}, outputs, opset=18)
    with pytest.MonkeyPatch.context() as patch:
        scale_floats(patch, 1 + 2**-11)
        findings = cross_check(proto, onnxq.Samples({"x": weights(0, 64, 8)}, batch_size=64))
    (output,) = findings.outputs
    assert (output.unit, output.rounding, output.behind) == ("ulps", 0, "Softmax 'softmax'")
    with pytest.raises(VerificationError, match="output 'y'"):
        findings.check()


def test_a_float_node_that_computes_otherwise_is_named_with_a_bound_that_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scale_floats(monkeypatch, 1 + 2**-17)
    nodes = [make("Transpose", ["f"], ["h"], "turn"), make("Exp", ["h"], ["g"], "exp")]
    findings = cross_check(
        around_float(*nodes), onnxq.Samples({"x": weights(0, 8, 64, 8)}, batch_size=8)
    )
    assert not any(n.differing for n in findings.nodes)
    assert [o.behind for o in findings.outputs] == ["Exp 'exp'"] * 2
    with pytest.raises(VerificationError, match=r"Exp 'exp'.*--max-output-lsb \d+\)") as error:
        findings.check()
    (lsb,) = re.findall(r"--max-output-lsb (\d+)", str(error.value))
    findings.check(max_output_lsb=int(lsb))


def test_float_operators_that_onnx_lacks_run_on_onnx_runtime() -> None:
    inverse = make("Inverse", ["f"], ["g"], "inverse", domain="com.microsoft")
    proto = around_float(inverse)
    proto.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, ["N", 8, 8]))
    findings = cross_check(proto, {"x": 3 * weights(0, 4, 8, 8)})
    findings.check()
    assert findings.end_to_end == ""


# --- in the arithmetic of the machine


def saturating() -> onnx.ModelProto:
    """A MatMulInteger whose pairs of products int16 does not hold: 8 of its 12 columns."""
    b = np.full((4, 12), 127, np.int8)
    b[:, 8:] = 64
    node = make("MatMulInteger", ["x", "b"], ["y"], "matmul")
    uint8, int32 = TensorProto.UINT8, TensorProto.INT32
    return model([node], {"b": b}, {"x": [3, 4]}, {"y": int32}, opset=21, dtype=uint8)


FULL = np.full((3, 4), 255, np.uint8)


def test_sums_that_saturate_on_this_machine_are_no_difference_and_are_counted() -> None:
    findings = cross_check(saturating(), [{"x": FULL}])
    assert findings.exact
    assert findings.overflows == (3 * 8 * 2 if SATURATES else 0)
    assert findings.machine == target_here().name


@pytest.mark.parametrize("machine", ["x86-avx2", "x86-vnni"])
def test_the_reference_has_the_arithmetic_of_the_machine_it_runs_on(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxq.checking.cross_check.target_here", lambda: find(machine))
    findings = cross_check(saturating(), [{"x": FULL}])
    saturates = find(machine).saturation_mode is SaturationMode.SATURATES
    assert findings.overflows == (3 * 8 * 2 if saturates else 0)
    wrong = 0 if saturates is SATURATES else 3 * 8
    assert [n.differing for n in findings.nodes] == [wrong]
    assert [o.differing for o in findings.outputs] == [wrong]


# --- what does not


def test_a_broken_kernel_is_caught_and_named(
    quantized: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter(monkeypatch, "QLinearAdd", "com.microsoft")
    findings = cross_check(quantized, onnxq.Samples({"x": images(4)}, batch_size=2))
    wrong = [n for n in findings.nodes if n.differing]
    assert [(n.name, n.op_type, n.differing, n.largest) for n in wrong] == [
        ("add", "QLinearAdd", 4 * 8 * 8 * 8, 1)
    ]
    assert findings.first_difference == "add"
    with pytest.raises(VerificationError, match="QLinearAdd 'add': 2048 of 2048"):
        findings.check()


def test_only_the_node_itself_is_blamed_not_those_behind_it(
    quantized: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter(monkeypatch, "QLinearConv", "com.microsoft")
    findings = cross_check(quantized, {"x": images(2)})
    assert {n.op_type for n in findings.nodes if n.differing} == {"QLinearConv"}


def test_a_fusion_that_gives_other_integers_is_caught_end_to_end(
    quantized: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels are right, but the file computes something else than what ONNX Runtime runs."""
    altered = quantized.clone()
    (scale,) = [v for v in altered.graph.initializers.values() if v.name == "c2_scale"]
    assert scale.const_value is not None
    scale.const_value = ir.tensor(scale.const_value.numpy() * np.float32(1.5), name="c2_scale")
    evaluator = reference.evaluator
    monkeypatch.setattr(reference, "evaluator", lambda _, **options: evaluator(altered, **options))
    findings = cross_check(quantized, onnxq.Samples({"x": images(4)}, batch_size=2))
    assert not any(n.differing for n in findings.nodes)
    assert findings.differing == findings.outputs[0].differing > 0
    assert findings.first_difference.startswith("conv2")
    with pytest.raises(VerificationError, match="output 'y', end to end"):
        findings.check()


def test_a_kernel_that_gives_another_shape_is_a_problem(
    quantized: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = catalog.find_integer("QGemm", "com.microsoft")
    assert operator is not None
    wrong = np.zeros((1, 1), np.float32)
    monkeypatch.setattr(operator, kernel_called_here(operator), lambda *_: (wrong,))
    findings = cross_check(quantized, {"x": images(2)})
    with pytest.raises(VerificationError, match=r"the reference gives float32 \(1, 1\)"):
        findings.check(max_lsb=1000)


def test_integer_nodes_without_kernel_are_listed_and_break_the_check() -> None:
    wide = make("MatMulInteger16", ["x", "w"], ["y"], "wide", domain="com.microsoft")
    constants: dict[str, Array] = {"w": np.ones((3, 2), np.int16)}
    int16, int32 = onnx.TensorProto.INT16, onnx.TensorProto.INT32
    proto = model([wide], constants, {"x": [2, 3]}, {"y": int32}, opset=21, dtype=int16)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    findings = cross_check(proto, [{"x": np.ones((2, 3), np.int16)}])
    assert [n.name for n in findings.unchecked] == ["wide"]
    assert "MatMulInteger16 'wide'" in findings.end_to_end
    with pytest.raises(VerificationError, match="'wide' was not checked"):
        findings.check()
    findings.check(unchecked=Unchecked.ALLOWED)


def test_outputs_that_change_when_inner_tensors_are_read_are_noted(
    quantized: ir.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(target: ir.Model, names: Sequence[str]) -> object:
        exposed = expose(target, names)
        return dataclasses.replace(exposed, model=_shifted(exposed.model))

    monkeypatch.setattr("onnxq.checking.node_by_node.expose", other)
    findings = cross_check(quantized, {"x": images(1)})
    assert findings.instrumented == ("y",)
    with pytest.raises(VerificationError, match="output 'y' changes"):
        findings.check(max_lsb=10**9)


def _shifted(target: ir.Model) -> ir.Model:
    """The target with the scale of its input doubled."""
    scale = target.graph.initializers["x_scale"]
    assert scale.const_value is not None
    scale.const_value = ir.tensor(scale.const_value.numpy() * np.float32(2), name="x_scale")
    return target


# --- bodies of control flow


def branch(name: str, pads: int, zero: str) -> onnx.GraphProto:
    slots = ["q", "s", zero, "w", "s", "wz", "s", zero]
    return helper.make_graph(
        [make("QLinearConv", slots, [f"{name}_y"], name, pads=[pads] * 4)],
        name,
        [],
        [helper.make_tensor_value_info(f"{name}_y", TensorProto.UINT8, None)],
    )


INTEGERS: dict[str, Array] = {
    "s": np.array(0.05, np.float32),
    "z": np.array(9, np.uint8),
    "w": np.arange(-54, 54, dtype=np.int8).reshape(4, 3, 3, 3),
    "wz": np.array(0, np.int8),
    "zero": np.array(0, np.float32),
}


def branches() -> onnx.ModelProto:
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        make("ReduceMean", ["x"], ["mean"], "mean", keepdims=0),
        make("Greater", ["mean", "zero"], ["positive"], "greater"),
        make(
            "If",
            ["positive"],
            ["y"],
            "if",
            then_branch=branch("then", 1, "z"),
            else_branch=branch("else", 0, "z"),
        ),
    ]
    return model(nodes, INTEGERS, {"x": [1, 3, 8, 8]}, {"y": TensorProto.UINT8}, opset=21)


def test_nodes_in_branches_are_compared_when_their_branch_runs() -> None:
    both = cross_check(branches(), [{"x": images(1) + 1}, {"x": images(1) - 1}])
    both.check()
    sizes = {n.name.split("_")[0]: n.elements for n in both.nodes if n.op_type == "QLinearConv"}
    assert sizes == {"then": 4 * 64, "else": 4 * 36}


def test_a_branch_that_no_sample_reaches_is_listed() -> None:
    half = cross_check(branches(), [{"x": images(1) + 1}])
    assert "QLinearConv" in {n.op_type for n in half.unchecked}
    assert {n.reason.words for n in half.unchecked} == {"no sample reached it"}
    assert half.unreached == half.unchecked
    half.check()
    assert not half.exact


def test_integer_nodes_in_a_loop_are_compared() -> None:
    add = make("QLinearAdd", ["a", "s", "z", "a", "s", "z", "s", "z"], ["b"], "inner")
    add.domain = "com.microsoft"
    kind = helper.make_tensor_value_info
    body = helper.make_graph(
        [add, make("Identity", ["go"], ["again"], "same")],
        "body",
        [kind("i", 7, []), kind("go", 9, []), kind("a", 2, [4])],
        [kind("again", 9, []), kind("b", 2, [4])],
    )
    constants = {**INTEGERS, "n": np.array(3, np.int64), "true": np.array(True)}
    nodes = [
        make("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
        make("Loop", ["n", "true", "q"], ["y"], "loop", body=body),
    ]
    proto = model(nodes, constants, {"x": [4]}, {"y": TensorProto.UINT8}, opset=21)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    findings = cross_check(proto, [{"x": weights(0, 4)}])
    findings.check()
    assert [(n.op_type, n.elements) for n in findings.nodes][1] == ("QLinearAdd", 3 * 4)


# --- samples, memory, files


@pytest.mark.parametrize(("op_type", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_net_that_computes_in_float_runs_on_onnx_runtime_itself(
    op_type: str, gates: int
) -> None:
    """So a MatMul behind it gets the same integers: no last digit of onnxq's sums tips one."""
    text = f"""m (float[5,N,8] x) => (float[5,N,8] y) {{
      one = Constant<value = int64[1] {{1}}>()
      all = {op_type}<hidden_size = 16>(x, w, r)
      h = Squeeze(all, one)
      y = MatMul(h, v)
    }}"""
    arrays = {"w": weights(0, 1, gates * 16, 8), "r": weights(1, 1, gates * 16, 16)}
    stored, matmul = (
        QConfigDynamic(default_dynamic_qconfig.weight, form)
        for form in (Precision.WEIGHT_ONLY, Precision.DYNAMIC_INT8)
    )
    source = parsed(text, {**arrays, "v": weights(2, 16, 8)})
    made = dynamic(source, {op_type: stored, "MatMul": matmul})
    findings = cross_check(made, [{"x": weights(3, 5, 3, 8)}])
    assert findings.exact


def test_a_sequence_beside_its_initial_state_is_one_run() -> None:
    text = """m (float[T,N,8] x, float[1,N,16] h) => (float[T,1,N,16] y) {
      y, last = GRU<hidden_size = 16, linear_before_reset = 1>(x, w, r, , , h)
    }"""
    made = dynamic(parsed(text, {"w": weights(0, 1, 48, 8), "r": weights(1, 1, 48, 16)}))
    findings = cross_check(made, {"x": weights(2, 5, 3, 8), "h": weights(3, 1, 3, 16)})
    findings.check()
    assert (findings.batches, findings.outputs[0].elements) == (1, 5 * 3 * 16)


def test_state_goes_round() -> None:
    nodes = [
        make("MatMul", ["x", "w"], ["p"], "matmul"),
        make("Add", ["p", "h"], ["h_out"], "add"),
        make("Identity", ["h_out"], ["y"], "copy"),
    ]
    outputs = {"y": 1, "h_out": 1}
    proto = model(nodes, {"w": weights(0, 4, 4)}, {"x": [1, 4], "h": [1, 4]}, outputs)
    x = {"x": np.ones((5, 4), np.float32)}
    state = {"h_out": "h"}
    quantized = onnxq.quantize(proto, onnxq.Samples(x, feedback=state))
    findings = cross_check(quantized, onnxq.Samples(x, feedback=state))
    assert findings.batches == 5
    findings.check()
    with pytest.raises(QConfigError, match="no output 'h_ou'"):
        cross_check(quantized, onnxq.Samples(x, feedback={"h_ou": "h"}))


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_batches(quantized: ir.Model) -> None:
    def stream(count: int) -> Iterator[dict[str, np.ndarray]]:
        return ({"x": images(100, seed)} for seed in range(count))

    peaks = []
    for count in (2, 3, 12):  # the first run fills caches
        tracemalloc.start()
        cross_check(quantized, stream(count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]


def test_progress_counts_batches(quantized: ir.Model) -> None:
    seen: list[tuple[int, int | None]] = []
    cross_check(
        quantized, {"x": images(3)}, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_threads_change_nothing(quantized: ir.Model) -> None:
    one, two = (cross_check(quantized, {"x": images(4)}, threads=n) for n in (1, 2))
    assert one == two


def test_findings_of_a_file_are_saved_and_read(quantized: ir.Model, tmp_path: Path) -> None:
    from onnxq.graph.io import save

    save(quantized, tmp_path / "q.onnx")
    np.savez(tmp_path / "x.npz", x=images(2))
    findings = cross_check(tmp_path / "q.onnx", tmp_path / "x.npz")
    assert CrossFindings.from_dict(json.loads(findings.to_json())) == findings
    assert findings.model_hash == cross_check(quantized, {"x": images(1)}).model_hash


def test_unusable_input_is_refused(quantized: ir.Model, tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="shape"):
        cross_check(quantized, {"x": images(1)[:, :2]})
    with pytest.raises(CalibrationError):
        cross_check(quantized, [])
    with pytest.raises(ModelError, match="no such file"):
        cross_check(tmp_path / "none.onnx", {"x": images(1)})
    with pytest.raises(QConfigError, match="0 worker threads"):
        cross_check(quantized, {"x": images(1)}, threads=0)


WEIGHTS_ALONE = [
    QConfigDynamic(default_dynamic_qconfig.weight, Precision.WEIGHT_ONLY),
    float16_dynamic_qconfig,
]


@pytest.mark.parametrize("entry", WEIGHTS_ALONE, ids=["stored", "half"])
def test_a_dynamic_model_of_weights_alone_is_compared_end_to_end(entry: QConfigDynamic) -> None:
    plain = model(
        [make("MatMul", ["x", "w"], ["y"], "matmul")], {"w": weights(0, 64, 64)}, {"x": ["N", 64]}
    )
    made = onnxq.quantize_dynamic(plain, {"matmul": entry})
    findings = cross_check(made, onnxq.Samples({"x": weights(1, 4, 64)}, batch_size=4))
    findings.check()
    assert (findings.weights_alone, findings.nodes) == (True, ())
    assert [o.elements for o in findings.outputs] == [256]
    assert not findings.exact  # there is no integer


def test_a_float_model_does_not_pass() -> None:
    findings = cross_check(convolutions(), {"x": images(1)})
    assert not findings.exact
    with pytest.raises(VerificationError, match="runs no node of this model in integers"):
        findings.check()
