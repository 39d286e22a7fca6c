"""Genai-folder makes a folder of a decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnxq
from tests.tiny_decoder import tiny_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def test_a_folder_is_made_and_its_files_are_named(run: Run, tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    result = run("genai-folder", tmp_path / "m.onnx", "-o", tmp_path / "made", "--context", 16)
    assert result.exit_code == 0, result.stderr
    assert "genai_config.json, model.onnx, tokenizer.json" in result.stdout
    assert '"context_length": 16' in (tmp_path / "made" / "genai_config.json").read_text("utf-8")


def test_a_context_that_is_too_long_is_refused(run: Run, tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    result = run("genai-folder", tmp_path / "m.onnx", "-o", tmp_path / "made", "--context", 64)
    assert result.exit_code == 5
    assert "context is 64; wanted 1 to 32" in result.stderr
    assert not (tmp_path / "made").exists()
