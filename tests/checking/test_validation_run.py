from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.checking import validation_run as module
from onnxq.checking.side_by_side import Pair
from onnxq.checking.validation import RefusalError, Validation, on_made_up_inputs, refusal
from onnxq.checking.validation_run import try_out
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import CalibrationError, ModelError
from onnxq.graph.io import load
from onnxq.ort import runtime
from onnxq.quantized.verdict import InputSource
from onnxq.samples import open_samples
from onnxq.targets import find
from tests.examples import images, model, network, weights
from tests.refused_models import refused, samples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.quantized.quantized_model import QuantizedModel

LONG_AGO = Stopwatch(-1000.0)  # so that what was spent since leaves time for every pair


def made(source: onnx.ModelProto, x: Mapping[str, Array]) -> tuple[ir.Model, QuantizedModel]:
    prepared = onnxq.prepare(source)
    plan = onnxq.plan(prepared, onnxq.calibrate(prepared, x))
    return prepared.model, onnxq.rewrite(prepared, plan)


@pytest.fixture(scope="module")
def pair() -> tuple[ir.Model, QuantizedModel]:
    """Canonical float model and quantized one."""
    return made(network(), {"x": images(8)})


def batches(count: int) -> list[dict[str, Array]]:
    return [{"x": images(2, seed)} for seed in range(count)]


def test_outputs_speed_sizes_and_nodes_are_found(pair: tuple[ir.Model, QuantizedModel]) -> None:
    source, quantized = pair
    verdict, runs, _ = try_out(
        quantized, Validation(source, InputSource.UNSEEN, batches(3), None, work=LONG_AGO)
    )
    (findings,) = onnxq.verify(source, quantized, batches(3)).outputs
    (output,) = verdict.outputs
    assert output.sqnr_db == pytest.approx(findings.sqnr_db, abs=0.01)  # verify has more outputs
    assert output.top1_agreement == findings.top1_agreement
    assert (verdict.samples, verdict.samples_in_all) == (6, 6)
    assert verdict.speedup is not None
    assert verdict.speedup > 0
    assert verdict.integer_nodes == sum(runs.integer_nodes.values()) > 0
    assert verdict.quantized_bytes == len(quantized.to_bytes())
    assert verdict.notes == ()


@pytest.mark.parametrize(
    ("target", "here", "notes"),
    [("x86-vnni", "x86-avx2", 1), ("x86-vnni", "x86-vnni", 0), ("portable", "x86-avx2", 0)],
)
def test_a_machine_that_saturates_where_the_target_does_not_is_named(
    target: str, here: str, notes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "target_here", lambda: find(here))
    x = {"x": images(8)}
    prepared = onnxq.prepare(network(), target=target)
    quantized = onnxq.rewrite(prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, x)))
    validation = Validation(prepared.model, InputSource.UNSEEN, batches(1), None)
    verdict, *_ = try_out(quantized, validation)
    found = [note for note in verdict.notes if "this machine is x86-avx2" in note]
    assert len(found) == notes
    assert all("on x86-vnni they do not" in note for note in found)


def test_speed_is_not_measured_where_that_takes_long(
    pair: tuple[ir.Model, QuantizedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_TIME_S", 0.0)  # two pairs of this model take less
    source, quantized = pair
    later = Stopwatch(time.process_time() + 1000)  # nothing was spent yet: nothing may be
    verdict, *_ = try_out(
        quantized, Validation(source, InputSource.UNSEEN, batches(1), None, work=later)
    )
    assert verdict.speedup is None
    assert "onnxq bench does it" in verdict.notes[0]
    assert verdict.outputs


def test_on_made_up_inputs_it_only_runs(pair: tuple[ir.Model, QuantizedModel]) -> None:
    source, quantized = pair
    verdict, *_ = try_out(quantized, on_made_up_inputs(source))
    assert verdict.input_source is InputSource.MADE_UP
    assert (verdict.outputs, verdict.speedup) == ((), None)


def test_a_collapse_that_is_not_found_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ModelError("cannot be looked into")

    monkeypatch.setattr(module, "find_collapse", fail)
    source, quantized = made(network(), {"x": images(8) * 1e-4})
    verdict, *_ = try_out(quantized, Validation(source, InputSource.UNSEEN, [{"x": images(2)}]))
    assert verdict.warning
    assert verdict.notes[-1].endswith("was not found: cannot be looked into")


def test_without_memory_for_both_the_float_side_is_left_out(
    pair: tuple[ir.Model, QuantizedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, quantized = pair
    monkeypatch.setattr(module, "available_bytes", lambda: 100)
    verdict, *_ = try_out(quantized, Validation(source, InputSource.UNSEEN, batches(1)))
    assert (verdict.outputs, verdict.speedup) == ((), None)
    assert "not compared with float: that needs about 0.0 GB" in verdict.notes[0]
    assert verdict.samples == 2


def test_integers_and_booleans_are_counted_where_they_agree() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "mm"),
        helper.make_node("ArgMax", ["p"], ["y"], "top", axis=1),
        helper.make_node("Greater", ["p", "zero"], ["b"], "sign"),
    ]
    constants = {"w": weights(1, 8, 8), "zero": np.zeros((), np.float32)}
    outputs = {"y": TensorProto.INT64, "b": TensorProto.BOOL}
    source, quantized = made(
        model(nodes, constants, {"x": ["N", 8]}, outputs), {"x": weights(2, 32, 8)}
    )
    x = [{"x": weights(3, 64, 8)}]
    verdict, *_ = try_out(quantized, Validation(source, InputSource.UNSEEN, x))
    y, b = verdict.outputs
    assert (y.sqnr_db, b.sqnr_db) == (None, None)
    assert 0.5 < (y.agreement or 0) <= 1
    assert 0.9 < (b.agreement or 0) <= 1


def test_a_collapse_names_the_first_node_behind_which_it_is() -> None:
    """Inputs ten thousand times those of the calibration saturate from the first node on."""
    source, quantized = made(network(), {"x": images(8) * 1e-4})
    validation = Validation(source, InputSource.UNSEEN, [{"x": images(2)}])
    verdict, *_ = try_out(quantized, validation)
    assert verdict.warning
    assert verdict.collapse is not None
    assert (verdict.collapse.node, verdict.collapse.tensor) == ("relu1", "r1")


def test_an_output_of_another_shape_keeps_no_bound() -> None:
    output = module.ComparedOutput(Pair("y", "y", "y", None))
    output.update(np.zeros((2, 3)), np.zeros((3, 2)))
    verdict = output.verdict()
    assert verdict is not None
    assert math.isnan(verdict.sqnr_db or 0.0)
    assert "changes its shape" in output.problem


def test_indices_of_another_number_agree_in_none_and_break_no_bound_in_db() -> None:
    output = module.ComparedOutput(Pair("kept", "kept", "kept", None))
    output.update(np.arange(6), np.arange(4))
    output.update(np.arange(6), np.arange(6))
    verdict = output.verdict()
    assert verdict is not None
    assert (verdict.sqnr_db, verdict.agreement) == (None, 0.5)
    assert "changes its shape" in output.problem


def test_state_goes_round_on_either_side() -> None:
    nodes = [
        helper.make_node("Add", ["x", "h"], ["s"], "add"),
        helper.make_node("MatMul", ["s", "w"], ["h_out"], "matmul"),
    ]
    constants = {"w": weights(1, 4, 4)}
    shapes = {"x": [2, 4], "h": [2, 4]}
    prepared = onnxq.prepare(model(nodes, constants, shapes, {"h_out": 1}), feedback={"h_out": "h"})
    x = [{"x": weights(seed, 2, 4)} for seed in range(4)]
    quantized = onnxq.rewrite(prepared, onnxq.plan(prepared, onnxq.calibrate(prepared, x)))
    verdict, *_ = try_out(
        quantized, Validation(prepared.model, InputSource.UNSEEN, x, None, {"h_out": "h"})
    )
    findings = onnxq.verify(prepared.model, quantized, onnxq.Samples(x, feedback={"h_out": "h"}))
    assert verdict.outputs[0].sqnr_db == pytest.approx(findings.outputs[0].sqnr_db, abs=0.01)


def test_a_model_that_does_not_run_is_told_with_the_batch() -> None:
    source, quantized = made(refused(), samples())
    x = {"x": samples()["x"][:1]}
    with pytest.raises(RefusalError, match="re-use buffer") as caught:
        try_out(quantized, Validation(source, InputSource.UNSEEN, [x]))
    assert caught.value.feeds is not None
    assert np.array_equal(caught.value.feeds["x"], x["x"])
    assert "re-use buffer" in refusal(quantized, x)
    assert refusal(quantized, None) == ""
    assert refusal(source, x) == ""


def test_a_batch_that_the_float_model_alone_does_not_take_is_told_too() -> None:
    _, quantized = made(network(), {"x": images(2)})
    fixed = onnxq.prepare(network(batch=2)).model
    with pytest.raises(RefusalError) as caught:
        try_out(quantized, Validation(fixed, InputSource.UNSEEN, [{"x": images(1)}]))
    assert caught.value.feeds is not None
    assert caught.value.feeds["x"].shape[0] == 1


def test_large_weights_are_rounded_once_for_the_run_and_the_file() -> None:
    wide = model([helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")],
                 {"w": weights(1, 512, 600)}, {"x": [2, 512]}, {"y": 1})  # fmt: skip
    source, quantized = made(wide, {"x": weights(2, 4, 512)})
    lazy = [v.const_value for v in quantized.graph.initializers.values()]
    assert [t.cache for t in lazy if isinstance(t, ir.LazyTensor)] == [False]
    try_out(quantized, on_made_up_inputs(source, LONG_AGO))
    assert [t.cache for t in lazy if isinstance(t, ir.LazyTensor)] == [True]


def test_no_sample_to_check_on_is_an_error(pair: tuple[ir.Model, QuantizedModel]) -> None:
    source, quantized = pair
    with pytest.raises(CalibrationError, match="no samples"):
        try_out(quantized, Validation(source, InputSource.UNSEEN, open_samples([], ())))


def test_a_float_model_that_is_refused_is_not_timed_on_made_up_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ONNX Runtime has no LSTM of batches first, and runs the one that onnxq writes."""
    source = load(network())
    quantized = onnxq.quantize_dynamic(network(), objective="size", check=onnxq.Check.NONE)
    true_open = runtime.open_session

    def refusing(model: ir.Model, **options: Any) -> runtime.Session:
        if model is source:
            raise ModelError("it has no such kernel")
        return true_open(model, **options)

    monkeypatch.setattr(runtime, "open_session", refusing)
    verdict, _, timed_on = try_out(quantized, on_made_up_inputs(source, sizes={}))
    assert verdict.speedup is None
    assert timed_on == {}


def test_numbers_that_are_nan_in_both_models_are_counted() -> None:
    source = model(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Sqrt", ["p"], ["y"]),
        ],
        {"w": -np.eye(4, dtype=np.float32)},
        {"x": ["N", 4]},
    )
    x = np.abs(np.random.default_rng(0).normal(1, 1, (16, 4))).astype(np.float32)
    x[:, 1:] *= -1  # the root of -x is a number there
    quantized = onnxq.quantize_dynamic(source, check={"x": x}, objective="size")
    words = "16 of 64 numbers are NaN or Inf in both models"
    assert quantized.verdict is not None
    assert f"output 'y': {words}" in quantized.verdict.notes
    (found,) = onnxq.verify(source, quantized, {"x": x}).outputs
    assert (found.nonfinite_pairs, found.elements) == (16, 64)
