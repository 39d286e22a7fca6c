from __future__ import annotations

import html
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.examples import network, save

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_the_command_in_a_report_writes_it_again(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    paths = (model_path, quantized_path, samples_path)
    made = run("report", *paths, "-o", report, "--min-sqnr", 10, "--batch-size", 4)
    assert made.exit_code == 0
    (command,) = re.findall(r'<pre class="command"><code>(.*?)</code>', report.read_text("utf-8"))
    words = shlex.split(html.unescape(command))
    assert words[:2] == ["onnxq", "report"]
    report.unlink()
    assert run(*words[1:]).exit_code == 0
    assert report.is_file()


@pytest.mark.nightly
def test_a_report_with_a_broken_bound_is_written_and_fails(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    paths = (model_path, quantized_path, samples_path)
    assert run("report", *paths, "-o", report, "--min-sqnr", 99).exit_code == 8
    assert '<li class="broken">' in report.read_text("utf-8")


def test_files_that_do_not_belong_together_leave_nothing_behind(
    run: Run, quantized_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    other = network()
    other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    before = set(tmp_path.iterdir()) | {tmp_path / "other.onnx"}
    path = save(other, tmp_path / "other.onnx")
    made = run("report", path, quantized_path, samples_path, "-o", tmp_path / "r.html")
    assert made.exit_code == 3
    assert "was made from float model" in made.stderr
    assert set(tmp_path.iterdir()) == before


def test_a_report_does_not_overwrite_what_it_reads(
    run: Run, model_path: Path, quantized_path: Path, samples_path: Path
) -> None:
    paths = (model_path, quantized_path, samples_path)
    assert run("report", *paths, "-o", quantized_path).exit_code != 0
    assert quantized_path.read_bytes()[:1] == b"\x08"


def test_quantize_writes_a_report_with_the_reasons_of_its_plan(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    made = run("quantize", model_path, samples_path, "-o", tmp_path / "q.onnx", "--report", report)
    assert made.exit_code == 0
    text = report.read_text("utf-8")
    assert "computed with" in text
    assert "The forms are read from the quantized file" not in text


def test_a_report_of_statistics_alone_asks_for_samples(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "s.json"
    assert run("calibrate", model_path, samples_path, "-o", stats).exit_code == 0
    made = run(
        *("quantize", model_path, "--stats", stats, "-o", tmp_path / "q.onnx"),
        *("--report", tmp_path / "r.html"),
    )
    assert made.exit_code == 2
    assert "--report runs both models" in made.stderr


@pytest.mark.nightly
def test_tune_writes_a_report_with_its_front(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    made = run(
        *("tune", model_path, samples_path, "-o", tmp_path / "q.onnx", "--max-runs", 3),
        *("--report", report),
    )
    assert made.exit_code == 0
    text = report.read_text("utf-8")
    assert '<section id="front"' in text
    assert "weights of 1 byte in place of 4" in text  # a reason of the plan
    assert "the file has it" not in text


def _command(report: Path) -> list[str]:
    (command,) = re.findall(r'<pre class="command"><code>(.*?)</code>', report.read_text("utf-8"))
    return shlex.split(html.unescape(command))


@pytest.mark.nightly
def test_a_report_of_a_search_names_its_bounds(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    words = ("tune", model_path, samples_path, "-o", tmp_path / "q.onnx", "--max-time", "1.5")
    assert run(*words, "--max-runs", 2, "--report", report).exit_code == 0
    assert _command(report) == [
        "onnxq",
        *map(str, words),
        "--max-runs",
        "2",
        "--report",
        str(report),
    ]


def test_quantize_dynamic_writes_a_report_with_its_reasons(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    words = ("quantize-dynamic", model_path, "-o", tmp_path / "q.onnx", "--objective", "size")
    refused = run(*words, "--report", report)
    assert refused.exit_code == 2
    assert "--report runs both models: give --check." in refused.stderr
    assert run(*words, "--report", report, "--check", samples_path).exit_code == 0
    assert _command(report)[1] == "quantize-dynamic"
    text = report.read_text("utf-8")
    assert "The forms are read from the quantized file" not in text
    assert "the file has it" not in text


def test_quantize_weights_writes_a_report_with_ranges_of_blocks(
    run: Run, model_path: Path, samples_path: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.html"
    words = ("quantize-weights", model_path, "-o", tmp_path / "q.onnx", "--method", "rtn")
    refused = run(*words, "--report", report)
    assert refused.exit_code == 2
    assert "--report runs both models: give SAMPLES or --check." in refused.stderr
    assert run(*words, "--report", report, "--check", samples_path).exit_code == 0
    text = report.read_text("utf-8")
    assert "groups of 32" in text
    assert "The forms are read from the quantized file" not in text
