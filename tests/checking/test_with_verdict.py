from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.checking.check import Check
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import CalibrationError, ModelError, QConfigError, VerificationError
from onnxq.ort import runtime
from onnxq.ort.runtime import open_session
from onnxq.qconfig import default_qconfig_mapping
from onnxq.quantized.verdict import InputSource
from tests.examples import images, model, network, weights
from tests.refused_models import refused, samples

if TYPE_CHECKING:
    from onnxq.core.arrays import Array
    from onnxq.quantized.verdict import Verdict


def verdict_of(made: onnxq.QuantizedModel) -> Verdict:
    assert made.verdict is not None
    return made.verdict


def test_some_of_the_calibration_samples_are_tried() -> None:
    verdict = verdict_of(onnxq.quantize(network(), {"x": images(64)}))
    assert verdict.input_source is InputSource.CALIBRATION
    assert (verdict.samples, verdict.samples_in_all) == (16, 64)
    assert verdict.outputs[0].sqnr_db is not None


def test_what_an_algorithm_fits_is_told_by_others_from_a_handful_on() -> None:
    asked = default_qconfig_mapping().set_improve(["bias"])
    verdict = verdict_of(onnxq.quantize(network(), {"x": images(8)}, qconfig=asked))
    assert verdict.input_source is InputSource.NOT_FITTED
    assert verdict.samples == 2
    verdict = verdict_of(onnxq.quantize_weights(network(), {"x": images(8)}))
    assert (verdict.input_source, verdict.samples) == (InputSource.UNSEEN, 2)


def test_few_samples_are_said_to_prove_little() -> None:
    one, two, enough = (onnxq.quantize(network(), {"x": images(n)}) for n in (1, 2, 16))
    assert "one sample proves little, and the model fits what it is made from: give 16" in str(
        one.verdict
    )
    assert "2 samples prove little, and the model fits what it is made from: give 16" in str(
        two.verdict
    )
    assert "prove" not in str(enough.verdict)


@pytest.mark.parametrize("method", ["quantize", "quantize_weights"])
def test_a_batch_whose_size_a_constant_fixes_is_tried_whole(method: str) -> None:
    """The file leaves the size open; the batch is cut everywhere else."""
    x = weights(0, 6, 8)
    made = getattr(onnxq, method)(fixed_batch(), [{"x": x[:3]}, {"x": x[3:]}])
    verdict = verdict_of(made)
    assert (verdict.samples, verdict.samples_in_all) == (6, 6)
    assert verdict.outputs[0].sqnr_db is not None
    assert not verdict.left_in_float


def fixed_batch() -> onnx.ModelProto:
    """concat(x, c) w, where c has three rows."""
    nodes = [
        helper.make_node("Concat", ["x", "c"], ["joined"], axis=1),
        helper.make_node("MatMul", ["joined", "w"], ["y"]),
    ]
    constants = {"c": weights(1, 3, 24), "w": weights(2, 32, 16)}
    return model(nodes, constants, {"x": ["N", 8]})


def test_samples_to_check_on_are_all_tried() -> None:
    made = onnxq.quantize(network(), {"x": images(8)}, check={"x": images(5, seed=1)})
    verdict = verdict_of(made)
    assert verdict.input_source is InputSource.UNSEEN
    assert (verdict.samples, verdict.samples_in_all) == (5, 5)


def test_wrong_samples_to_check_on_are_told_before_the_calibration() -> None:
    def never() -> object:
        raise AssertionError("calibrated")

    with pytest.raises(CalibrationError, match="no input 'z'"):
        onnxq.quantize(network(), never, check={"z": images(1), "w": images(1)})


def test_of_a_run_function_and_of_convert_batches_are_kept_too() -> None:
    made = onnxq.quantize(network(), lambda prepared: prepared.run({"x": images(2)}))
    assert verdict_of(made).samples_in_all == 2
    prepared = onnxq.prepare(network())
    for seed in range(40):
        prepared.run({"x": images(1, seed)})
    verdict = verdict_of(onnxq.convert(prepared))
    assert (verdict.samples, verdict.samples_in_all) == (16, 40)


def test_with_statistics_alone_it_is_said_that_it_runs() -> None:
    statistics = onnxq.calibrate(onnxq.prepare(network()), {"x": images(4)})
    verdict = verdict_of(onnxq.quantize(network(), statistics))
    assert verdict.input_source is InputSource.MADE_UP
    assert (verdict.outputs, verdict.speedup) == ((), None)


def test_rewrite_gives_no_verdict_and_neither_does_none() -> None:
    assert onnxq.quantize(network(), {"x": images(2)}, check=Check.NONE).verdict is None
    assert onnxq.quantize_dynamic(network(), objective="size", check=Check.NONE).verdict is None


def test_a_bound_that_is_missed_is_an_error_with_the_verdict() -> None:
    with pytest.raises(VerificationError, match="bound of 90 dB") as caught:
        onnxq.quantize(network(), {"x": images(4)}, check=onnxq.Check(min_sqnr_db=90))
    assert getattr(caught.value, "verdict").outputs  # noqa: B009  # a subclass has it
    assert onnxq.quantize(network(), {"x": images(4)}, check=onnxq.Check(min_sqnr_db=10)).verdict


@pytest.mark.parametrize("runs", [True, False])
def test_a_bound_wants_samples(runs: bool) -> None:
    check = Check(min_sqnr_db=20, runs=runs)
    with pytest.raises(QConfigError, match="needs samples to compare"):
        onnxq.quantize_dynamic(network(), objective="size", check=check)


def test_a_result_far_from_float_warns() -> None:
    check = onnxq.Check({"x": images(4)}, repair=None)
    with pytest.warns(UserWarning, match="measure your own metric"):
        onnxq.quantize(network(), {"x": images(4) * 1e-4}, check=check)


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_nodes_that_onnxruntime_does_not_run_are_left_in_float(form: str) -> None:
    made = onnxq.quantize(refused(), samples(), format=form)
    verdict = verdict_of(made)
    assert len(verdict.left_in_float) == 1
    assert verdict.integer_nodes
    with open_session(made) as session:
        session.run({"x": samples()["x"][:1]})


def test_the_plan_says_why_they_are_in_float() -> None:
    from onnxq.checking.with_verdict import make_static, static_validation

    prepared = onnxq.prepare(refused())
    prepared.run({"x": samples()["x"][:1]})
    validation = static_validation(prepared, Check.CALIBRATION, prepared.excerpt, Stopwatch())
    made = make_static(prepared, lambda p: onnxq.plan(p, prepared.statistics), "qdq", validation)
    (name,) = verdict_of(made.model).left_in_float
    decision = made.plan.decisions[name]
    assert "with it in integers, ONNX Runtime does not run: " in decision.reason.words  # type: ignore[union-attr]
    assert "re-use buffer" in decision.reason.words  # type: ignore[union-attr]
    assert type(made.plan).from_dict(made.plan.to_dict()) == made.plan


def test_a_dynamic_part_that_is_to_blame_is_left_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    """No such model is known: the session refuses what has the node's integers."""
    from onnxq.checking import runnable, validation

    def refuse(made: onnxq.QuantizedModel) -> bool:
        return "w3_quantized" in made.graph.initializers

    opened = runtime.open_with_graph

    def open_with_graph(made: onnxq.QuantizedModel) -> object:
        if refuse(made):
            raise ModelError("no")
        return opened(made)

    monkeypatch.setattr(runtime, "open_with_graph", open_with_graph)
    monkeypatch.setattr(
        runnable,
        "refusal",
        lambda made, feeds: "no" if refuse(made) else validation.refusal(made, feeds),
    )
    made = onnxq.quantize_dynamic(network(), objective="size")
    assert verdict_of(made).left_in_float == ("gemm",)
    assert "w3" in made.graph.initializers


def custom() -> onnx.ModelProto:
    """A MatMul, and an operator that nobody here has."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "mm"),
        helper.make_node("Foo", ["p"], ["y"], "foo", domain="my.ops"),
    ]
    made = model(nodes, {"w": weights(1, 64, 64)}, {"x": ["N", 64]}, {"y": TensorProto.FLOAT})
    made.opset_import.append(helper.make_opsetid("my.ops", 1))
    made.graph.value_info.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, ["N", 64]))
    return made


def test_operators_that_are_not_registered_here_are_for_check_none() -> None:
    with pytest.raises(ModelError, match=r"float model itself does not run.*onnxq.Check.NONE"):
        onnxq.quantize_dynamic(custom(), objective="size")
    made = onnxq.quantize_dynamic(custom(), objective="size", check=Check.NONE)
    assert made.verdict is None
    assert any(t.data_type == TensorProto.INT8 for t in made.to_proto().graph.initializer)


def test_inputs_that_cannot_be_made_up_leave_opening_alone() -> None:
    """Reshape wants rows of four: one row of random numbers does not do."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "mm"),
        helper.make_node("Reshape", ["p", "shape"], ["y"], "rows"),
    ]
    constants: dict[str, Array] = {"w": weights(1, 64, 64), "shape": np.array([-1, 256], np.int64)}
    source = model(nodes, constants, {"x": ["N", 64]})
    verdict = verdict_of(onnxq.quantize_dynamic(source, objective="size"))
    assert verdict.input_source is InputSource.NONE
    assert replace(verdict, input_source=InputSource.MADE_UP) != verdict
    assert str(verdict).startswith("ONNX Runtime opens it")


def test_a_few_large_batches_are_cut_so_that_some_rows_judge_what_algorithms_fit() -> None:
    rng = np.random.default_rng(0)
    batches = [{"x": rng.normal(size=(50, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    qconfig = default_qconfig_mapping().set_improve(["bias"])
    made = onnxq.quantize(network(), batches, qconfig=qconfig, target="x86-vnni")
    assert made.verdict is not None
    assert made.verdict.input_source is InputSource.NOT_FITTED
    assert made.verdict.samples == 52  # 13, 12, 13 and 12 rows in a piece, the last of each 4
