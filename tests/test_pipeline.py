from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import onnxq
from onnxq.errors import CalibrationError, ModelError, NothingQuantizedError, QConfigError
from onnxq.graph.io import load, model_hash, save
from onnxq.operator import Float
from onnxq.ort.runtime import open_session
from onnxq.pipeline import convert, quantize, quantize_dynamic
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.static.calibrate import Shard, calibrate
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import plan
from onnxq.static.prepare import prepare
from onnxq.static.rewrite import rewrite
from tests.dynamic_models import parsed
from tests.examples import ALL_INTEGERS, images, model, network, weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxq.static.prepared import Prepared

Batch = dict[str, npt.NDArray[np.float32]]


def batches(count: int = 3) -> list[Batch]:
    return [{"x": images(2, seed)} for seed in range(count)]


@pytest.fixture(scope="module")
def wanted() -> str:
    """Hash of what the stages, called one by one, make of the network and the batches."""
    prepared = prepare(network())
    return model_hash(rewrite(prepared, plan(prepared, calibrate(prepared, batches()))))


def test_quantize_is_the_stages_one_after_the_other(wanted: str) -> None:
    assert model_hash(quantize(network(), batches())) == wanted


def test_samples_may_be_a_file(wanted: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=batches(1)[0]["x"])
    made = quantize(network(), tmp_path / "x.npz")
    assert "QuantizeLinear" in [node.op_type for node in made.graph]
    assert model_hash(made) != wanted  # two of the six samples


def test_samples_may_be_one_array_per_input() -> None:
    whole = {"x": np.concatenate([batch["x"] for batch in batches()])}
    made = quantize(network(), whole)
    assert "QuantizeLinear" in [node.op_type for node in made.graph]


def test_state_is_handed_on_as_asked() -> None:
    nodes = [
        helper.make_node("Add", ["x", "h"], ["s"], "add"),
        helper.make_node("MatMul", ["s", "w"], ["y"], "matmul"),
        helper.make_node("Relu", ["y"], ["h_out"], "relu"),
    ]
    source = model(nodes, {"w": weights(1, 4, 4)}, {"x": [2, 4], "h": [2, 4]}, {"y": 1, "h_out": 1})
    samples = [{"x": weights(seed, 2, 4)} for seed in range(2)]
    made = quantize(source, onnxq.Samples(samples, feedback={"h_out": "h"}))
    assert "QuantizeLinear" in [node.op_type for node in made.graph]
    with pytest.raises(CalibrationError, match="h"):
        quantize(source, samples)


def test_a_run_function_is_called_with_prepared_and_run_args(wanted: str) -> None:
    seen: list[Prepared] = []

    def evaluate(prepared: Prepared, data: list[Batch], limit: int) -> None:
        seen.append(prepared)
        for batch in data[:limit]:
            prepared.run(batch)

    assert model_hash(quantize(network(), evaluate, [batches(9), 3])) == wanted
    assert len(seen) == 1


def test_a_run_function_that_runs_nothing_is_an_error() -> None:
    with pytest.raises(CalibrationError, match="no batch was observed"):
        quantize(network(), lambda _: None)


def test_statistics_take_the_place_of_samples(wanted: str) -> None:
    statistics = calibrate(prepare(network()), batches())
    assert model_hash(quantize(network(), statistics)) == wanted


def test_samples_or_statistics_are_needed() -> None:
    with pytest.raises(CalibrationError, match="wants samples, or statistics"):
        quantize(network())


def test_statistics_of_another_model_are_refused() -> None:
    other = network()
    other.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.ones((8, 3, 3, 3), np.float32), "w1")
    )
    statistics = calibrate(prepare(other), batches(1))
    with pytest.raises(CalibrationError, match="of another model"):
        quantize(network(), statistics)


def test_the_verdict_has_what_is_odd_about_the_samples() -> None:
    one = {"x": images(1)}
    verdict = quantize(network(), one).verdict
    assert verdict is not None
    assert any("one sample" in note for note in verdict.notes)
    prepared = prepare(network())
    prepared.run(one)
    verdict = convert(prepared).verdict
    assert verdict is not None
    assert any("one sample" in note for note in verdict.notes)


def test_the_verdict_names_a_missing_shard() -> None:
    prepared = prepare(network())
    first = calibrate(prepared, batches(), shard=Shard(0, 2))
    verdict = quantize(network(), first).verdict
    assert verdict is not None
    assert any("'2/2' missing" in note for note in verdict.notes)


@pytest.mark.parametrize("bound", [float("nan"), "20"])
def test_a_bound_that_is_no_number_is_told_before_the_work_begins(bound: Any) -> None:
    with pytest.raises(QConfigError, match="wanted a number of dB"):
        quantize("none", [], check=onnxq.Check(min_sqnr_db=bound))
    with pytest.raises(QConfigError, match="wanted a number of dB"):
        quantize_dynamic("none", check=onnxq.Check(min_sqnr_db=bound))


def test_convert_uses_what_run_has_observed(wanted: str) -> None:
    prepared = prepare(network())
    for batch in batches():
        prepared.run(batch)
    assert model_hash(convert(prepared)) == wanted
    with pytest.raises(CalibrationError, match="no batch was observed"):
        convert(prepare(network()))


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'qdq'"):
        quantize(network(), batches(1), format="qqd")


def test_qconfig_and_target_reach_the_result() -> None:
    mapping = default_qconfig_mapping().set_op_type("Conv", None)
    made = quantize(network(), batches(), qconfig=mapping, target="x86-vnni")
    assert made.metadata_props["onnxq.target"] == "x86-vnni"
    assert "w1" in made.graph.initializers
    assert "w3_quantized" in made.graph.initializers


def test_the_model_is_left_untouched() -> None:
    source = ir.from_proto(network())
    before = model_hash(source)
    quantize(source, batches(1))
    assert model_hash(source) == before


def test_external_weights_of_any_size_are_read(wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(network(), path, save_as_external_data=True, size_threshold=0)
    assert model_hash(quantize(path, batches())) == wanted


def test_the_result_is_near_the_float_model_also_after_saving(tmp_path: Path) -> None:
    save(quantize(network(), batches()), tmp_path / "int8.onnx")
    onnx.checker.check_model(tmp_path / "int8.onnx", full_check=True)
    x = {"x": images(2)}
    with open_session(load(tmp_path / "int8.onnx")) as quantized:
        (got,) = quantized.run(x)
    with open_session(ir.from_proto(network())) as real:
        (exact,) = real.run(x)
    spread = float(np.ptp(np.asarray(exact, np.float32)))
    assert np.abs(np.subtract(got, exact)).max() < spread * 4 / 255  # four steps of the output


def test_labels_are_ignored_and_the_batch_is_as_asked(wanted: str) -> None:
    x = np.concatenate([batch["x"] for batch in batches()])
    samples = {"x": x, "labels": np.zeros(6)}
    assert (
        model_hash(quantize(network(), onnxq.Samples(samples, batch_size=2, ignore=["labels"])))
        == wanted
    )


def masked() -> onnx.ModelProto:
    """Attention's way with masks: a MatMul, a mask that is computed, Exp, a MatMul."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "scores"),
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Log", ["r"], ["l"], "log"),
        helper.make_node("Add", ["m", "l"], ["s"], "add"),
        helper.make_node("Exp", ["s"], ["e"], "exp"),
        helper.make_node("MatMul", ["e", "w"], ["y"], "last"),
    ]
    return model(nodes, {"w": weights(1, 8, 8)}, {"x": ["N", 8]})


def test_an_activation_that_is_not_finite_leaves_its_readers_in_float_with_that_reason() -> None:
    source = masked()
    samples = [{"x": weights(seed, 4, 8)} for seed in range(4)]
    prepared = prepare(source, ALL_INTEGERS)
    made = plan(prepared, calibrate(prepared, samples))
    decisions = {name: str(decision) for name, decision in made.decisions.items()}
    assert "tensor 'l' is not finite: " in decisions["add"]
    assert "NaN or infinite, as -inf, in batch 0 of the samples" in decisions["add"]
    assert isinstance(made.decisions["scores"], Quantize)
    assert isinstance(made.decisions["last"], Quantize)
    quantized = quantize(source, samples, qconfig=ALL_INTEGERS)
    with open_session(quantized) as ours, open_session(load(source)) as theirs:
        got, wanted = ours.run(samples[0]), theirs.run(samples[0])
    np.testing.assert_allclose(got[0].astype(np.float32), wanted[0].astype(np.float32), atol=0.1)


@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_a_weight_that_is_not_finite_is_an_error_though_its_results_are_neither(kind: str) -> None:
    constants = {"w": weights(1, 8, 8), "b": weights(2, 8)}
    constants[kind[0]][0] = np.nan
    source = model(
        [
            helper.make_node("Gemm", ["x", "w", "b"], ["m"], "first"),
            helper.make_node("Relu", ["m"], ["y"], "relu"),
        ],
        constants,
        {"x": ["N", 8]},
    )
    with pytest.raises(ModelError, match=f"{kind} '{kind[0]}' of 'first' holds NaN or Inf"):
        quantize(source, [{"x": weights(3, 4, 8)}], qconfig=ALL_INTEGERS)


def test_prepared_and_statistics_go_to_other_processes_and_back() -> None:
    prepared = prepare(network())
    prepared.run(batches()[0])
    there = pickle.loads(pickle.dumps(prepared))
    assert there.model_hash == model_hash(there.model) == prepared.model_hash
    for one in (prepared, there):
        for batch in batches()[1:]:
            one.run(batch)
    assert model_hash(convert(there)) == model_hash(convert(prepared))
    parts = [
        pickle.loads(pickle.dumps(calibrate(there, batches(), shard=Shard(i, 2)))) for i in (0, 1)
    ]
    made = rewrite(prepared, plan(prepared, parts[1].merge(parts[0])))
    assert model_hash(made) == model_hash(convert(prepared))


class Reader:
    """ONNX Runtime's way to give samples."""

    def __init__(self) -> None:
        self._left = batches()

    def get_next(self) -> Batch | None:
        return self._left.pop(0) if self._left else None


@pytest.mark.parametrize("source", [Reader, lambda: iter(batches())])
def test_samples_that_come_once_may_be_run_more_often(
    source: Callable[[], Any],
) -> None:
    observed = onnxq.targets.find("portable").with_reduce_range("observed")
    wanted = quantize(network(), batches(), target=observed)
    assert model_hash(quantize(network(), source(), target=observed)) == model_hash(wanted)


def test_workers_of_any_executor_calibrate_to_the_same_bytes() -> None:
    with ThreadPoolExecutor(2) as executor:
        shared = quantize(network(), batches(), executor=executor)
    assert model_hash(shared) == model_hash(quantize(network(), batches()))


def test_an_executor_without_samples_to_share_out_is_refused() -> None:
    statistics = calibrate(prepare(network()), batches())
    with ThreadPoolExecutor(1) as executor, pytest.raises(CalibrationError, match="executor"):
        quantize(network(), statistics, executor=executor)


def test_excluded_nodes_stay_in_float_and_unknown_ones_get_the_nearest() -> None:
    with pytest.raises(QConfigError, match="Did you mean 'conv1'"):
        quantize(network(), batches(), exclude=["conv_1"])
    prepared = prepare(network(), ALL_INTEGERS, exclude=["conv1"])
    assert not isinstance(prepared.decisions["conv1"], Quantize)
    with pytest.raises(QConfigError, match="Did you mean 'gemm'"):
        quantize_dynamic(network(), objective="size", exclude=["gem"])
    small = quantize_dynamic(network(), objective="size", exclude=["conv*"])
    assert any(n.op_type == "Cast" for n in small.graph)  # of the stored weight of gemm
    with pytest.raises(NothingQuantizedError):
        quantize_dynamic(network(), objective="size", exclude=["gemm", "conv*"])


def test_quantize_logs_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "onnxq"):
        quantize(network(), batches())
    text = caplog.text
    assert text.index("prepared for") < text.index("calibrating on") < text.index("planned")
    assert "rewriting as qdq" in text


def test_samples_to_check_a_dynamic_model_on_may_have_labels_and_a_batch_size() -> None:
    samples = {"x": images(4), "label": np.zeros(4)}
    made = quantize_dynamic(
        network(), objective="size", check=onnxq.Samples(samples, batch_size=2, ignore=["label"])
    )
    assert made.verdict is not None
    assert made.verdict.samples == 4


def test_the_repr_of_each_stage_is_a_line() -> None:
    prepared = prepare(network())
    statistics = calibrate(prepared, batches())
    made = plan(prepared, statistics)
    for value in (prepared, statistics, made, rewrite(prepared, made), made.qconfig):
        assert len(repr(value)) < 500
        assert "\n" not in repr(value)


@pytest.mark.parametrize("choice", [Choice.BEST, Choice.ALL_INTEGERS])
@pytest.mark.parametrize(
    ("matmul", "shape"),
    [("MatMul(x, w)", (0, 5)), ("MatMul(x, w)", (5, 0)), ("Gemm <transB = 1> (x, w)", (0, 5))],
)
def test_a_matmul_by_a_weight_without_elements_stays_float(
    matmul: str, shape: tuple[int, int], choice: Choice
) -> None:
    inputs, outputs = shape[::-1] if "transB" in matmul else shape
    text = f"""g (float[n, {inputs}] x, float[n, 8] z) => (float[n, {outputs}] y, float[n, 8] r)
        {{ y = {matmul} r = MatMul(z, v) }}"""
    source = parsed(text, {"w": np.zeros(shape, np.float32), "v": weights(0, 8, 8)})
    samples = {"x": np.zeros((4, inputs), np.float32), "z": weights(1, 4, 8)}
    asked = default_qconfig_mapping().set_choice(choice)
    made = onnxq.quantize(source, samples, qconfig=asked)
    onnxq.verify(source, made, samples)
    reasons = [d.reason.words for d in prepare(source).decisions.values() if isinstance(d, Float)]
    assert any("has no element" in reason for reason in reasons)
    onnxq.quantize_dynamic(source, objective="size")
    onnxq.quantize_weights(source, group_size=16, method="rtn")
