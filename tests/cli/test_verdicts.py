from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from onnxq.quantized.verdict import Verdict
from onnxq.static.plan import Plan
from tests.checking.test_with_verdict import custom
from tests.dynamic_models import linear
from tests.examples import images, save
from tests.refused_models import refused, samples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_quantize_ends_with_the_verdict_and_what_to_do_next(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "q.onnx"
    result = run("quantize", model_path, samples_path, "-o", output)
    lines = result.stdout[result.stdout.index("verdict:") :].splitlines()
    assert lines[0].startswith("verdict: it runs: 7 of its 9 nodes compute in integers; ")
    assert lines[1] == "  beside float, on 8 of 8 calibration samples:"
    assert lines[2].startswith("    output 'y': SQNR ")
    (command,) = [line for line in lines if line.startswith("next: ")]
    files = f"{model_path} {output} {samples_path}"
    assert command.startswith(f"next: onnxq report {files} -o {output.with_suffix('.html')}")


def test_the_verdict_is_in_json_with_the_sizes_of_the_files(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output, unseen = tmp_path / "q.onnx", tmp_path / "unseen.npz"
    np.savez(unseen, x=images(4, seed=3), label=np.arange(4))
    options = ("-o", output, "--check", unseen, "--ignore", "label", "--json")
    result = run("quantize", model_path, samples_path, *options)
    assert result.exit_code == 0, result.stderr
    verdict = Verdict.from_dict(json.loads(result.stdout)["verdict"])
    assert (verdict.input_source.value, verdict.samples) == ("samples to check on", 4)
    assert verdict.float_bytes == model_path.stat().st_size
    assert verdict.quantized_bytes == output.stat().st_size


def test_a_bound_that_is_no_number_is_wrong_usage(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    quantized = tmp_path / "q.onnx"
    for command in (
        ("quantize", model_path, samples_path, "-o", quantized),
        ("verify", model_path, quantized, samples_path),  # before anything is read
    ):
        result = run(*command, "--min-sqnr", "nan")
        assert result.exit_code == 2
        assert "got nan; wanted a number" in result.stderr


@pytest.mark.parametrize("how", ["--stats", "dynamic"])
def test_without_samples_it_says_that_nothing_is_known_of_accuracy(
    how: str, run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    output, stats = tmp_path / "q.onnx", tmp_path / "m.stats"
    if how == "--stats":
        run("calibrate", model_path, samples_path, "-o", stats)
        result = run("quantize", model_path, "--stats", stats, "-o", output)
    else:
        result = run("quantize-dynamic", model_path, "-o", output, "--objective", "size")
    assert "verdict: it runs (on made-up inputs): " in result.stdout
    assert (
        "without samples nothing is known of its accuracy: give some with --check" in result.stdout
    )
    assert "SQNR" not in result.stdout


def test_a_dynamic_model_is_checked_on_samples(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    options = ("-o", tmp_path / "q.onnx", "--objective", "size", "--check", samples_path)
    result = run("quantize-dynamic", model_path, *options, "--batch-size", 4, "--json")
    verdict = Verdict.from_dict(json.loads(result.stdout)["verdict"])
    assert verdict.samples == 8
    assert verdict.outputs[0].sqnr_db is not None


@pytest.mark.parametrize("command", ["quantize", "quantize-dynamic"])
def test_a_missed_bound_writes_nothing_and_is_exit_code_8(
    command: str, run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    before = set(tmp_path.iterdir())
    given = [samples_path] if command == "quantize" else ["--objective", "size"]
    options = ("-o", tmp_path / "q.onnx", "--check", samples_path, "--min-sqnr", 95)
    result = run(command, model_path, *given, *options, "--save-plan", tmp_path / "p.json")
    assert result.exit_code == 8
    assert "the bound of 95 dB is broken" in result.stderr
    assert set(tmp_path.iterdir()) == before


def test_a_result_far_from_float_is_written_with_a_warning(
    run: Run, model_path: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "dim.npz", x=images(4) * 1e-4)
    np.savez(tmp_path / "real.npz", x=images(4))
    options = ("-o", tmp_path / "q.onnx", "--check", tmp_path / "real.npz", "--repair", "off", "-v")
    result = run("quantize", model_path, tmp_path / "dim.npz", *options)
    assert result.exit_code == 0
    assert "warning: output 'y' keeps " in result.stderr
    assert "measure your own metric" in result.stderr
    assert "it collapses first behind node 'relu1'" in result.stdout
    assert (tmp_path / "q.onnx").exists()


def test_what_onnxruntime_does_not_run_is_never_written(run: Run, tmp_path: Path) -> None:
    source, output, plan = (tmp_path / name for name in ("m.onnx", "q.onnx", "plan.json"))
    onnx.save(refused(), source)
    np.savez(tmp_path / "x.npz", x=samples()["x"])
    options = ("-o", output, "--save-plan", plan, "-v")
    result = run("quantize", source, tmp_path / "x.npz", *options)
    assert result.exit_code == 0, result.stderr
    assert "left in float, since ONNX Runtime does not run it else: 'conv2'" in result.stdout
    assert "ONNX Runtime does not run: " in " ".join(result.stdout.split())
    assert "re-use buffer" in str(getattr(Plan.load(plan).decisions["conv2"], "reason", ""))
    assert run("verify", source, output, tmp_path / "x.npz").exit_code == 0


def test_operators_from_elsewhere_are_for_no_verdict(run: Run, tmp_path: Path) -> None:
    source, output = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(custom(), source)
    command = ("quantize-dynamic", source, "-o", output, "--objective", "size")
    result = run(*command)
    assert result.exit_code == 3
    assert "the float model itself does not run" in result.stderr
    assert "--no-verdict" in result.stderr
    assert not output.exists()
    result = run(*command, "--no-verdict")
    assert result.exit_code == 0, result.stderr
    assert "no verdict: the file was not run" in result.stdout
    said = json.loads(run(*command, "--no-verdict", "--json").stdout)
    assert (said["verdict"], said["execution"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--no-verdict", "--min-sqnr", "20"), 2, "--no-verdict leaves nothing for"),
        (("--min-sqnr", "20"), 5, "a bound of 20 dB needs samples"),
        (("--check", "nowhere.npz"), 6, "there is no such file"),
    ],
)
def test_options_that_cannot_be_followed_are_refused(
    options: tuple[str, ...], code: int, message: str, run: Run, model_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / "q.onnx"
    result = run("quantize-dynamic", model_path, "-o", output, "--objective", "size", *options)
    assert result.exit_code == code
    assert message in result.stderr
    assert not output.exists()


def test_a_wrong_path_to_check_on_is_told_before_the_calibration(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("calibrated")

    monkeypatch.setattr("onnxq.static.calibration.Calibration.observe", never)
    options = ("-o", tmp_path / "q.onnx", "--check", tmp_path / "nowhere.npz")
    assert run("quantize", model_path, samples_path, *options).exit_code == 6


def test_static_and_dynamic_say_alike_that_nothing_is_quantized(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    for words in (
        ("quantize", model_path, samples_path, "--set", "global=float"),
        ("quantize-dynamic", save(linear(), tmp_path / "p.onnx")),
    ):
        result = run(*words, "-o", tmp_path / "q.onnx")
        assert (result.exit_code, result.stdout) == (13, "")
        assert "nothing is quantized, and nothing was written: " in result.stderr
        assert not (tmp_path / "q.onnx").exists()
