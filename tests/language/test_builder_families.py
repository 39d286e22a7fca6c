"""Families that the builder of onnxruntime-genai writes, from random weights: all commands run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from onnxq.language.decoder import LOGITS
from onnxq.language.genai_folder import genai_folder, tokenizer_files
from onnxq.language.token_run import TokenRun
from onnxq.metrics import as_samples

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.oracle, pytest.mark.nightly]

SIZES = {
    "vocab_size": 320,  # the byte tokenizer ends with 256
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.09,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0),
}
SLIDING = {"head_dim": 32, "sliding_window": 32}
FAMILIES: dict[str, dict[str, int | float]] = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 32},
    "Mistral": {
        "sliding_window": 512
    },  # past 64, onnxruntime-genai 0.18 refuses its own float folder
    "Phi3": {"original_max_position_embeddings": 512},
    "Gemma": {"head_dim": 32},
    "Gemma2": {**SLIDING, "query_pre_attn_scalar": 32},
    "GptOss": {
        **SLIDING,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "initializer_range": 0.2,  # routers without near ties
    },
    "Granite": {},
    "Olmo": {},
    "SmolLM3": {},
    "Nemotron": {},
    "Lfm2": {},
    "Ernie4_5": {},
    "HunYuanDenseV1": {"head_dim": 32},
}
PROMPT = [5, 9, 77, 120, 33, 2, 8, 6]
COUNT = 90  # past every window


def built(family: str, folder: Path) -> Path:
    """The float folder that the builder writes of a family."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime_genai")
    name = f"{family}ForCausalLM"
    config = getattr(transformers, f"{family}Config")(**(SIZES | FAMILIES[family]))
    config.architectures = [name]
    source = folder / "source"
    torch.manual_seed(0)
    getattr(transformers, name)(config).eval().float().save_pretrained(source)
    for file, text in tokenizer_files().items():
        (source / file).write_text(json.dumps(text))
    made = folder / "built"
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", made]
    options = ["-p", "fp32", "-e", "cpu", "-c", folder / "cache"]
    subprocess.run([*map(str, command), *map(str, options)], check=True, capture_output=True)
    return made


def written(folder: Path) -> list[int]:
    """Greedy tokens of onnxruntime-genai."""
    og = importlib.import_module("onnxruntime_genai")
    model = og.Model(str(folder))
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=len(PROMPT) + COUNT, do_sample=False)
    generator = og.Generator(model, parameters)
    generator.append_tokens(PROMPT)
    found = []
    while not generator.is_done():
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))
    return found


def own(model: Path, given: list[int]) -> list[int]:
    """Tokens that our own loop would choose behind each of those, in onnxruntime-genai's steps.

    One long run has kernels of many rows, which add in another order: near ties change places.
    """
    found: list[int] = []
    tokens = np.array([PROMPT])
    with TokenRun(model, 1) as run:
        past, start = run.decoder.empty(1), 0
        for token in given:
            outputs = run._session.run(run.decoder.feeds(tokens, past, start))
            past = run.decoder.next_past(run._session.outputs, outputs)
            start += tokens.shape[1]
            found.append(int(outputs[run._session.outputs.index(LOGITS)][0, -1].argmax()))
            tokens = np.array([[token]])
    return found


def ends(folder: Path) -> list[int]:
    """Tokens that end a text."""
    found = json.loads((folder / "genai_config.json").read_text())["model"]["eos_token_id"]
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_command_takes_what_the_builder_writes(family: str, tmp_path: Path) -> None:
    folder = built(family, tmp_path)
    texts = np.random.default_rng(0).integers(1, 255, (8, 64))
    samples = as_samples(folder / "model.onnx", texts)
    four = onnxq.quantize_weights(folder / "model.onnx", samples, check=onnxq.Check.NONE)
    assert "MatMulNBits" in {node.op_type for node in four.graph}
    assert "MoE" not in {node.op_type for node in four.graph}
    made = onnxq.quantize_cache(four, samples)
    for number, model in enumerate((four, made)):
        target = genai_folder(model, tmp_path / str(number), like=folder)
        found = written(target)
        assert len(found) == COUNT or found[-1] in ends(target)
        assert found == own(target / "model.onnx", found)
