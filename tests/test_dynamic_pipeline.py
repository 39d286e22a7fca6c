"""onnxq.quantize_dynamic from end to end, and static and dynamic quantization in one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxq
from onnxq.errors import CalibrationError, ModelError, QConfigError
from onnxq.graph.io import save
from onnxq.operator import Float, Precision
from onnxq.qconfig import (
    QConfigDynamic,
    QConfigMapping,
    default_qconfig_mapping,
    float16_dynamic_qconfig,
    onnxq_default_dynamic_qconfig,
)
from onnxq.static.plan import Plan
from onnxq.static.reasons import QuantizedAtRunTime
from tests.dynamic_models import SIDE, UNMEASURED, linear, normal, op_types, quantized, run, stored
from tests.examples import images, model, network, weights

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = onnxq_default_dynamic_qconfig
BLOCKS = QConfigDynamic(ENTRY.weight, Precision.WEIGHT_ONLY_GROUPWISE, 16)
MIXED = default_qconfig_mapping().set_op_type("Gemm", ENTRY)


def test_a_file_is_quantized_and_gets_smaller(tmp_path: Path) -> None:
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")],
        {"w": weights(0, 256, 256)},
        {"x": ["N", 256]},
    )
    onnx.save(source, tmp_path / "m.onnx")
    save(onnxq.quantize_dynamic(tmp_path / "m.onnx", objective="size"), tmp_path / "q.onnx")
    # a byte per weight, and a scale of four bytes per block of 32 at most
    share = (tmp_path / "q.onnx").stat().st_size / (tmp_path / "m.onnx").stat().st_size
    assert share < (1 + 4 / 32) / 4 + 0.02


def test_verify_compares_a_dynamic_model_with_its_float_model() -> None:
    made = quantized(linear())
    findings = onnxq.verify(linear(), made, {"x": normal(20, SIDE)})
    (output,) = findings.outputs
    # integers of 7 bits: the noise of each weight is at most 1/128 of the largest in its column
    assert output.sqnr_db > 30
    assert findings.unmatched == ()


@pytest.mark.parametrize("entry", [ENTRY, BLOCKS], ids=["integer", "blocks"])
def test_every_integer_of_a_dynamic_model_is_checked(entry: QConfigDynamic) -> None:
    findings = onnxq.cross_check(quantized(linear(), entry), {"x": normal(20, SIDE)})
    if entry is ENTRY:
        findings.check()  # end to end, bit for bit
    assert findings.nodes
    assert not any(node.differing for node in findings.nodes)
    assert findings.unchecked == ()


def test_verify_refuses_another_float_model() -> None:
    with pytest.raises(ModelError, match="was made from float model"):
        onnxq.verify(linear(opset=19), quantized(linear()), {"x": normal(2, SIDE)})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"objective": "fast"}, "objective 'fast' is not known"),
        ({"target": "x86"}, "target 'x86' is not known"),
        ({"dtype": "int7"}, "dtype 'int7' is not known"),
    ],
)
def test_options_that_are_not_known_are_refused(option: dict[str, str], message: str) -> None:
    with pytest.raises(QConfigError, match=message):
        onnxq.quantize_dynamic(linear(), **option)  # type: ignore[arg-type]


# --- static and dynamic in one model


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("entry", [ENTRY, BLOCKS, float16_dynamic_qconfig])
def test_a_model_may_have_both(entry: QConfigDynamic, form: str) -> None:
    mapping = default_qconfig_mapping().set_node("gemm", entry)
    samples = {"x": images(8)}
    made = onnxq.quantize(
        network(), samples, qconfig=mapping, format=form, target=UNMEASURED, objective="size"
    )
    assert not {"w1", "w3"} & set(stored(made))
    findings = onnxq.verify(network(), made, samples)
    assert findings.execution.integer_nodes["QLinearConv"] == 2
    assert findings.execution.fallbacks == ()
    assert findings.outputs[0].sqnr_db > 30
    checked = onnxq.cross_check(made, samples)
    assert not any(node.differing for node in checked.nodes)
    assert checked.unchecked == ()


def test_prepare_and_plan_say_of_a_node_that_it_is_quantized_dynamically(tmp_path: Path) -> None:
    prepared = onnxq.prepare(network(), MIXED, UNMEASURED)
    assert prepared.decisions["gemm"] == Float(QuantizedAtRunTime())
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, {"x": images(4)}))
    assert made.decisions["gemm"] == Float(QuantizedAtRunTime())
    assert made.dynamic["gemm"].precision is Precision.DYNAMIC_INT8
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


def test_what_cannot_be_quantized_dynamically_gets_its_reason() -> None:
    mapping = default_qconfig_mapping().set_op_type("Softmax", ENTRY)
    decision = onnxq.prepare(network(), mapping).decisions["softmax"]
    assert isinstance(decision, Float)
    assert decision.reason.words.startswith("Softmax has no dynamically quantized form")
    source = model(
        [
            helper.make_node("MatMul", ["x", "x"], ["s"], "square"),
            helper.make_node("MatMul", ["s", "w"], ["y"], "matmul"),
        ],
        {"w": weights(0, SIDE, SIDE)},
        {"x": [SIDE, SIDE]},
    )
    prepared = onnxq.prepare(source, QConfigMapping(ENTRY), UNMEASURED)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, [{"x": normal(SIDE, SIDE)}]))
    verdict = made.decisions["square"]
    assert isinstance(verdict, Float)
    assert "computed at run time" in verdict.reason.words


def test_a_dynamic_node_between_static_ones_is_right() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], "first"),
        helper.make_node("MatMul", ["p", "b"], ["q"], "second"),
        helper.make_node("MatMul", ["q", "c"], ["y"], "third"),
    ]
    constants = {name: weights(seed, SIDE, SIDE) for seed, name in enumerate("abc")}
    source = model(nodes, constants, {"x": ["N", SIDE]})
    samples = {"x": normal(50, SIDE)}
    mapping = default_qconfig_mapping().set_node("second", ENTRY)
    made = onnxq.quantize(source, samples, qconfig=mapping, target=UNMEASURED)
    assert op_types(made).count("MatMulInteger") == 1
    assert onnxq.verify(source, made, samples).outputs[0].sqnr_db > 25
    onnxq.cross_check(made, samples).check()


def test_a_weight_of_both_parts_is_right_for_both_and_noted() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "static"),
        helper.make_node("MatMul", ["p", "w"], ["y"], "dynamic"),
    ]
    w = weights(0, SIDE, SIDE)
    source = model(nodes, {"w": w}, {"x": ["N", SIDE]})
    samples = {"x": normal(50, SIDE)}
    mapping = default_qconfig_mapping().set_node("dynamic", ENTRY)
    prepared = onnxq.prepare(source, mapping, UNMEASURED)
    made = onnxq.plan(prepared, onnxq.calibrate(prepared, samples))
    (note,) = [note for note in made.notes if "each part stores" in note]
    assert "weight 'w'" in note
    wanted = samples["x"] @ w @ w
    error = np.abs(run(onnxq.rewrite(prepared, made), samples) - wanted)
    # two products of 255 steps by 64 integers a side, and the steps of p between them
    assert error.max() <= 0.05 * np.abs(wanted).max()


def test_a_mixed_model_may_come_from_a_loop_of_batches() -> None:
    prepared = onnxq.prepare(network(), MIXED, UNMEASURED)
    prepared.run({"x": images(2)})
    made = onnxq.convert(prepared)
    assert "MatMulInteger" in op_types(made)
    assert run(made, {"x": images(2)}).shape == (2, 10)


def test_quantize_still_wants_samples() -> None:
    with pytest.raises(CalibrationError, match="wants samples, or statistics"):
        onnxq.quantize(network(), qconfig=MIXED)


def test_objective_speed_holds_for_the_dynamic_part_too() -> None:
    made = onnxq.quantize(network(), {"x": images(2)}, qconfig=MIXED, target="portable")
    prepared = onnxq.prepare(network(), MIXED, "portable")
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, {"x": images(2)}))
    assert ("Gemm" in op_types(made)) == ("gemm" not in plan.dynamic)
    assert np.isfinite(run(made, {"x": images(2)})).all()


def test_state_goes_round_in_the_samples_to_check_on() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "mm"),
        helper.make_node("Add", ["p", "h"], ["h_out"], "add"),
        helper.make_node("Relu", ["h_out"], ["y"], "relu"),
    ]
    ends: dict[str, list[int | str]] = {"x": ["N", 32], "h": ["N", 32]}
    source = model(nodes, {"w": weights(1, 32, 32)}, ends, {"y": 1, "h_out": 1})
    samples = {"x": weights(2, 4, 32)}
    made = onnxq.quantize_dynamic(
        source,
        objective="size",
        check=onnxq.Check(onnxq.Samples(samples, feedback={"h_out": "h"}), min_sqnr_db=20),
    )
    assert made.verdict is not None
    assert made.verdict.samples == 4
    with pytest.raises(QConfigError, match="no output 'g'"):
        onnxq.quantize_dynamic(
            source, objective="size", check=onnxq.Samples(samples, feedback={"g": "h"})
        )
