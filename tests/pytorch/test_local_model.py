"""Folders of transformers' weights are exported with a cache, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import pytest

from onnxq.errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

transformers: Any = pytest.importorskip("transformers")

SIZES: dict[str, Any] = {"vocab_size": 64, "n_layer": 1, "n_head": 2}


def test_gpt2_has_its_cache(tmp_path: Path) -> None:
    from onnxq.pytorch.local_model import export_folder

    config = transformers.GPT2Config(**SIZES, n_embd=16, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    graph = onnx.load(export_folder(tmp_path, tmp_path / "model.onnx")).graph
    parts = ["0.key", "0.value"]
    assert [v.name for v in graph.input][3:] == [f"past_key_values.{part}" for part in parts]
    assert [v.name for v in graph.output] == ["logits", *(f"present.{part}" for part in parts)]


def test_a_decoder_without_positions_is_refused_and_not_exported_without_a_cache(
    tmp_path: Path,
) -> None:
    from onnxq.pytorch.local_model import export_folder

    config = transformers.BloomConfig(**SIZES, hidden_size=16)
    transformers.BloomForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="BloomForCausalLM is not exported here"):
        export_folder(tmp_path, tmp_path / "model.onnx")


def test_a_decoder_that_is_an_encoder_by_its_configuration_is_refused(tmp_path: Path) -> None:
    from onnxq.pytorch.local_model import export_folder

    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.RobertaConfig(vocab_size=64, hidden_size=16, **sizes)
    transformers.RobertaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="RobertaForCausalLM is not exported here"):
        export_folder(tmp_path, tmp_path / "model.onnx")
