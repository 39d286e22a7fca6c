"""Calibrate can be cut into shards, stopped and gone on with."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from onnxq.ort import runtime
from onnxq.static import calibration
from onnxq.static.statistics import Statistics
from tests.examples import images

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_calibrate_then_quantize_equals_quantize(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    stats, two, one = (tmp_path / name for name in ("m.stats", "two.onnx", "one.onnx"))
    result = run("calibrate", model_path, samples_path, "-o", stats)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "8 batches" in result.stdout
    assert run("quantize", model_path, "--stats", stats, "-o", two).exit_code == 0
    assert run("quantize", model_path, samples_path, "-o", one).exit_code == 0
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("command", ["calibrate", "quantize"])
def test_threads_are_those_of_an_inference(
    command: str,
    run: Run,
    model_path: Path,
    samples_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = []

    def noted(*args: Any, **kwargs: Any) -> runtime.Session:
        opened.append((kwargs["threads"], kwargs["waiting"]))
        return runtime.open_session(*args, **kwargs)

    monkeypatch.setattr(calibration, "open_session", noted)
    arguments = (command, model_path, samples_path, "-o", tmp_path / "out")
    assert run(*arguments, "--threads", 1).exit_code == 0
    assert run(*arguments).exit_code == 0
    assert opened == [(1, runtime.Waiting.ASLEEP), (None, runtime.Waiting.ASLEEP)]
    assert "x>=1" in run(*arguments, "--threads", 0).stderr


def test_shards_merge_to_the_whole(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    parts = [tmp_path / f"{i}.stats" for i in (1, 2, 3)]
    for i, part in enumerate(parts, 1):
        code = run("calibrate", model_path, samples_path, "-o", part, "--shard", f"{i}/3").exit_code
        assert code == 0
    merged, whole = tmp_path / "merged.onnx", tmp_path / "whole.onnx"
    stats = [option for part in reversed(parts) for option in ("--stats", part)]
    assert run("quantize", model_path, *stats, "-o", merged).exit_code == 0
    assert run("quantize", model_path, samples_path, "-o", whole).exit_code == 0
    assert merged.read_bytes() == whole.read_bytes()


def test_resume_goes_on_where_a_run_ended(run: Run, model_path: Path, tmp_path: Path) -> None:
    stats, first, whole = (tmp_path / name for name in ("m.stats", "first.npz", "whole.npz"))
    np.savez(first, x=images(8)[:3])
    np.savez(whole, x=images(8))
    assert run("calibrate", model_path, first, "-o", stats).exit_code == 0
    result = run("calibrate", model_path, whole, "-o", stats, "--resume")
    assert "8 batches" in result.stdout
    direct = tmp_path / "direct.stats"
    assert run("calibrate", model_path, whole, "-o", direct).exit_code == 0
    for name, observer in Statistics.load(direct).observers.items():
        resumed = Statistics.load(stats).observers[name].state()
        assert all(np.array_equal(resumed[key], array) for key, array in observer.state().items())


def test_resume_with_other_samples_is_refused(run: Run, model_path: Path, tmp_path: Path) -> None:
    stats, one, other = (tmp_path / name for name in ("m.stats", "one.npz", "other.npz"))
    np.savez(one, x=images(3))
    np.savez(other, x=images(3, seed=1))
    assert run("calibrate", model_path, one, "-o", stats).exit_code == 0
    before = stats.read_bytes()
    result = run("calibrate", model_path, other, "-o", stats, "--resume")
    assert result.exit_code == 6
    assert stats.read_bytes() == before


def signal_behind_batch_2(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Sends this process a signal when a calibration has observed three batches."""
    from onnxq.static.calibration import Calibration

    observe = Calibration.observe

    def observe_and_send(self: Calibration, batch: object, index: int) -> None:
        observe(self, batch, index)  # type: ignore[arg-type]  # it only passes them on
        if index == 2:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Calibration, "observe", observe_and_send)


def test_an_interrupted_calibration_saves_what_it_saw(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_behind_batch_2(monkeypatch, signal.SIGINT)
    stats = tmp_path / "m.stats"
    result = run("calibrate", model_path, samples_path, "-o", stats)
    assert result.exit_code == 130
    assert "--resume" in result.stderr
    kept = Statistics.load(stats)
    assert list(kept.batches) == [0, 1, 2]
    assert "stopped after 3 batches" in kept.notes()[0]
    monkeypatch.undo()
    assert run("calibrate", model_path, samples_path, "-o", stats, "--resume").exit_code == 0
    assert not Statistics.load(stats).stopped


def test_a_stopped_calibration_goes_on_from_its_checkpoint(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_behind_batch_2(monkeypatch, signal.SIGTERM)
    stats, kept = tmp_path / "m.stats", tmp_path / "kept.stats"
    command = ("calibrate", model_path, samples_path, "-o", stats, "--checkpoint", kept)
    stopped = run(*command)
    assert (stopped.exit_code, stats.exists()) == (143, False)
    assert "stopped after 3 batches; go on with the same command" in stopped.stderr
    assert list(Statistics.load(kept).batches) == [0, 1, 2]
    monkeypatch.undo()
    assert run(*command).exit_code == 0
    assert not kept.exists()
    assert run("calibrate", model_path, samples_path, "-o", tmp_path / "whole").exit_code == 0
    assert stats.read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_batch_size_is_used(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    result = run("calibrate", model_path, samples_path, "-o", tmp_path / "s", "--batch-size", 3)
    assert "3 batches" in result.stdout
