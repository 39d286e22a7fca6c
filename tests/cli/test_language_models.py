"""Commands for language models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import onnxq
from onnxq.graph.io import load
from onnxq.language.decoder import Decoder
from onnxq.metrics import as_samples
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


def test_a_cache_becomes_int8(run: Run, tmp_path: Path) -> None:
    source = tiny_decoder()
    onnxq.save(source, tmp_path / "m.onnx")
    texts: dict[str, Any] = dict(as_samples(source, np.arange(20).reshape(2, 10)))
    np.savez(tmp_path / "texts.npz", **texts)
    out = tmp_path / "out.onnx"
    result = run("quantize-cache", tmp_path / "m.onnx", tmp_path / "texts.npz", "-o", out)
    assert result.exit_code == 0, result.stderr
    assert {str(x.dtype) for x in Decoder.of(load(out)).empty(1).values()} == {"int8"}
    assert "beside the float cache, on 2 batches of the samples" in result.stdout
    assert "output 'logits': SQNR " in result.stdout
