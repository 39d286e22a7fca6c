"""Models that are slower or larger with integers than without: integers go back, or float stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner, Result

import onnxq
from onnxq.checking import runnable
from onnxq.cli import main
from onnxq.errors import ModelError, NothingQuantizedError
from onnxq.qconfig import Choice, default_qconfig_mapping
from onnxq.repair import slower
from onnxq.times.timed_runs import WholeTime, time_beside_float
from tests.dynamic_models import parsed
from tests.examples import save

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from onnxq.quantized.verdict import Verdict
    from tests.dynamic_models import F32

WIDTH = 64
SLOW, DOUBTFUL = WholeTime(1.4, 1.3, 1.5), WholeTime(1.1, 0.9, 1.3)


def samples() -> dict[str, F32]:
    return {"x": np.random.default_rng(2).standard_normal((16, WIDTH)).astype(np.float32)}


def linear() -> onnx.ModelProto:
    """Two linear layers."""
    w, v = np.random.default_rng(1).standard_normal((2, WIDTH, WIDTH)).astype(np.float32) / 8
    text = f"""m (float[N,{WIDTH}] x) => (float[N,{WIDTH}] y) {{
        [first] a = MatMul(x, w) b = Relu(a) [second] y = MatMul(b, v) }}"""
    return parsed(text, {"w": w, "v": v})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, judged_here: None) -> list[WholeTime]:
    """Times that runs beside float show, one after the other; the last one from then on."""
    del judged_here
    monkeypatch.setattr(runnable, "CLEAR_SPEEDUP", 1e9)  # whatever the first pairs say
    times: list[WholeTime] = []

    def told(*_: object) -> WholeTime:
        return times.pop(0) if len(times) > 1 else times[0]

    monkeypatch.setattr(runnable, "time_beside_float", told)
    return times


def verdict_of(made: onnxq.QuantizedModel) -> Verdict:
    assert made.verdict is not None
    return made.verdict


@pytest.mark.parametrize("quantize", ["static", "dynamic"])
def test_a_model_that_is_slower_whatever_is_quantized_stays_float(
    quantize: str, clock: list[WholeTime]
) -> None:
    clock.append(SLOW)
    with pytest.warns(UserWarning, match="nothing is quantized: float is better here"):
        made = (
            onnxq.quantize(linear(), samples())
            if quantize == "static"
            else onnxq.quantize_dynamic(linear(), shapes={"x": [64, WIDTH]})
        )
    verdict = verdict_of(made)
    assert verdict.integer_nodes == 0
    assert {"first", "second"} <= set(verdict.taken_back)
    assert "1.40 of float's time" in verdict.float_because


def test_a_doubt_leaves_the_integers(clock: list[WholeTime]) -> None:
    clock.append(DOUBTFUL)
    verdict = verdict_of(onnxq.quantize(linear(), samples()))
    assert verdict.integer_nodes
    assert verdict.taken_back == ()
    assert verdict.speedup_range == (1 / 1.3, 1 / 0.9)


def test_integers_that_cost_time_go_back_and_the_others_stay(
    clock: list[WholeTime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own nodes' times the first layer is slower in integers, and the second faster."""
    from onnxq.tuning import measure_times

    true_times = measure_times.times_of_runs

    def told(*args: object, **more: object) -> object:
        found = true_times(*args, **more)  # type: ignore[arg-type]
        slow = {"float": 10.0, "int8": 1e6, "int8_float_output": 1e6}
        fast = {"float": 1e6, "int8": 10.0, "int8_float_output": 10.0}
        for node, times in found.nodes.items():
            times.ns.update(fast if node == "second" else slow)  # type: ignore[attr-defined]
            times.behind.clear()  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(measure_times, "times_of_runs", told)
    clock += [SLOW, DOUBTFUL]
    verdict = verdict_of(onnxq.quantize(linear(), samples()))
    assert verdict.integer_nodes
    assert "first" in verdict.taken_back
    assert "second" not in verdict.taken_back
    assert not verdict.float_because


def test_what_was_asked_for_stays_slow_or_not(clock: list[WholeTime]) -> None:
    clock.append(SLOW)
    everything = default_qconfig_mapping().set_choice(Choice.ALL_INTEGERS)
    for options in (
        {"qconfig": everything},
        {"objective": "size"},
        {"check": onnxq.Check(repair=None)},
    ):
        verdict = verdict_of(onnxq.quantize(linear(), samples(), **options))
        assert verdict.integer_nodes
        assert verdict.taken_back == ()


def test_the_default_target_is_judged_here() -> None:
    assert onnxq.targets.get_default().name == slower.PORTABLE


def test_objective_size_gives_tables_back_that_are_larger_than_what_they_save(
    judged_here: None,
) -> None:
    """A PRelu of 32 channels has a table of 256 integers for each."""
    del judged_here
    rng = np.random.default_rng(0)
    w, v = ((rng.standard_normal((32, n, 1, 1)) / 4).astype(np.float32) for n in (3, 32))
    slope = rng.uniform(0, 1, (32, 1, 1)).astype(np.float32)
    text = """m (float[N,3,16,16] x) => (float[N,32,16,16] y) {
        a = Conv(x, w) b = PRelu(a, s) c = Conv(b, v) y = PRelu(c, s) }"""
    x = {"x": rng.standard_normal((8, 3, 16, 16)).astype(np.float32)}
    made = onnxq.quantize(parsed(text, {"w": w, "v": v, "s": slope}), x, objective="size")
    verdict = verdict_of(made)
    assert verdict.quantized_bytes < (verdict.float_bytes or 0)
    assert verdict.taken_back


def test_nothing_is_written_where_float_is_better(tmp_path: Path, clock: list[WholeTime]) -> None:
    def run(*args: object) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args])

    clock.append(SLOW)
    model, file = save(linear(), tmp_path / "m.onnx"), tmp_path / "q.onnx"
    np.savez(tmp_path / "x.npz", x=samples()["x"])
    result = run("quantize", model, tmp_path / "x.npz", "-o", file)
    assert result.exit_code == NothingQuantizedError.exit_code == 13
    assert "float is better here" in result.stderr
    assert not file.exists()
    assert run("quantize", model, tmp_path / "x.npz", "-o", file, "--repair", "off").exit_code == 0
    assert file.exists()


def test_a_model_beside_itself_is_never_slower(judged_here: None) -> None:
    """The interval holds what sessions of one model differ by."""
    del judged_here
    from onnxq.graph.io import load
    from onnxq.times.timed_runs import time_beside_float

    model = load(linear())
    time = time_beside_float(model, model, samples(), 0.05)
    assert time.low <= time.ratio <= time.high
    assert time.low <= 1.02
    assert time.high >= 0.98


def test_weights_alone_get_a_time_of_several_pairs_of_sessions(clock: list[WholeTime]) -> None:
    clock.append(SLOW)
    verdict = verdict_of(onnxq.quantize_weights(linear(), samples(), method="rtn"))
    assert verdict.speedup_range == (1 / SLOW.high, 1 / SLOW.low)


def test_a_file_without_kernels_is_timed_as_its_float32_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runnable, "CLEAR_SPEEDUP", 1e9)  # whatever the first pairs say
    model = ir.from_proto(linear())
    for weight in model.graph.initializers.values():
        assert weight.const_value is not None
        numbers = weight.const_value.numpy().astype(ml_dtypes.bfloat16)
        weight.const_value = ir.tensor(numbers, name=weight.name)
    for value in (*model.graph.inputs, *model.graph.outputs, *model.graph.initializers.values()):
        value.dtype = ir.DataType.BFLOAT16
    ir.save(model, path := tmp_path / "m.onnx")
    timed: list[Path | None] = []

    def told(*given: Any) -> WholeTime:
        timed.append(given[-1])
        return time_beside_float(*given)

    monkeypatch.setattr(runnable, "time_beside_float", told)
    made = onnxq.quantize_weights(path, samples(), method="rtn")
    assert verdict_of(made).speedup_range is not None
    assert timed[0] == path
    assert timed[1:].count(path) == 0


def test_a_float16_model_gets_a_time_of_several_pairs_of_sessions(clock: list[WholeTime]) -> None:
    clock.append(SLOW)
    verdict = verdict_of(onnxq.half(linear(), samples()))
    assert verdict.speedup_range == (1 / SLOW.high, 1 / SLOW.low)


def test_a_model_that_cannot_be_timed_keeps_the_time_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> WholeTime:
        raise ModelError("no session")

    monkeypatch.setattr(runnable, "CLEAR_SPEEDUP", 1e9)
    monkeypatch.setattr(runnable, "time_beside_float", refused)
    verdict = verdict_of(onnxq.quantize_weights(linear(), samples(), method="rtn"))
    assert verdict.speedup is not None
    assert verdict.speedup_range is None
    assert "its speed is of one pair of sessions" in str(verdict)
