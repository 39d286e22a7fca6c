from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx.parser
import pytest

from scripts.demo import ROOT, Job, Row, table, top1

if TYPE_CHECKING:
    from pathlib import Path


def test_table_has_a_line_per_model_with_all_figures() -> None:
    row = Row("net", 0.871, 0.87, 1_148_000, 368_000, 1.8765)
    assert table([row]).splitlines()[-1] == ("| net | 87.1% | 87.0% | 1148 kB | 368 kB | 1.88x |")


def test_top1_counts_images_whose_largest_logit_is_their_class(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]>'
        "net (float[N,3] image) => (float[N,3] y) { y = Identity(image) }"
    )
    onnx.save(model, tmp_path / "net.onnx")
    images = np.eye(3, dtype=np.float32)[np.arange(250) % 3]  # not a multiple of the batch
    labels = (np.arange(250) % 3).astype(np.uint8)
    labels[:25] = 3
    assert top1(tmp_path / "net.onnx", images, labels) == 0.9


def test_the_table_fits_80_columns_and_has_four_lines_for_two_models() -> None:
    rows = [Row("mobilenetv2", 0.871, 0.87, 1_148_000, 368_000, 1.8765)] * 2
    lines = table(rows).splitlines()
    assert len(lines) == 4  # and a line above them: the five that the demo ends with
    assert max(map(len, lines)) <= 80


def test_a_command_is_shown_and_what_it_prints_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path / "log")
    job.run("targets")
    assert capsys.readouterr().out == "$ onnxq targets\n"
    assert "x86-vnni" in job.log.read_text("utf-8")
    job.show("--version")
    assert capsys.readouterr().out.startswith("$ onnxq --version\nonnxq ")


@pytest.mark.nightly
@pytest.mark.oracle  # runs all of it
def test_both_models_and_the_table_have_forty_lines(tmp_path: Path) -> None:
    command = [sys.executable, "scripts/demo.py", "--output", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert sum(line.startswith("verdict: ") for line in lines) == 2
    assert lines[-1].startswith("| mobilenetv2 | ")
