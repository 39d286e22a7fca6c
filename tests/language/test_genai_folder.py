from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import onnxq
from models.genai_decoder import load_genai_decoder
from onnxq.errors import ModelError, OutputError, QConfigError
from onnxq.language.genai_folder import Tokens, genai_folder
from onnxq.metrics import as_samples, bytes_of, windows
from tests.language.greedy_text import greedy
from tests.tiny_decoder import TINY, tiny_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

MODELS = Path(__file__).resolve().parents[2] / "models"

PROMPT = "It is a truth"
COUNT = 19  # the rest of the 32 positions


def test_the_folder_holds_model_configuration_and_tokenizer(tmp_path: Path) -> None:
    made = genai_folder(tiny_decoder(), tmp_path / "new", tokens=Tokens(end=10, pad=0))
    assert {path.name for path in made.iterdir()} == {
        "model.onnx",
        "genai_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((made / "genai_config.json").read_text("utf-8"))
    model = config["model"]
    assert (model["context_length"], model["vocab_size"], model["eos_token_id"]) == (32, 256, 10)
    assert (model["pad_token_id"], model["bos_token_id"]) == (0, 10)
    sizes = {name: model["decoder"][name] for name in ("head_size", "hidden_size")}
    assert sizes == {"head_size": 16, "hidden_size": 32}
    assert list(model["decoder"]["inputs"]) == [
        "input_ids",
        "attention_mask",
        "position_ids",
        "past_key_names",
        "past_value_names",
    ]
    assert config["search"]["past_present_share_buffer"] is True


def test_a_tokenizer_s_files_are_taken_over(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "tokenizer.json").write_text("{}")
    (source / "model.safetensors").write_text("not a tokenizer's")
    made = genai_folder(tiny_decoder(tokens=300), tmp_path / "made", tokenizer=source)
    assert (made / "tokenizer.json").read_text() == "{}"
    assert not (made / "model.safetensors").exists()


def test_requests_that_do_not_fit_write_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with pytest.raises(QConfigError, match="context is 33; wanted 1 to 32"):
        genai_folder(tiny_decoder(), folder, context=33)
    with pytest.raises(ModelError, match="vocabulary has 300 tokens; without a tokenizer"):
        genai_folder(tiny_decoder(tokens=300), folder)
    with pytest.raises(QConfigError, match="token end is 256; the vocabulary has 256 tokens"):
        genai_folder(tiny_decoder(), folder, tokens=Tokens(end=256))
    with pytest.raises(QConfigError, match=r"tokenizer .*no such file.* save_pretrained wrote"):
        genai_folder(tiny_decoder(), folder, tokenizer=tmp_path)
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError):
        genai_folder(tiny_decoder(), tmp_path / "file")
    with pytest.raises(OutputError):
        genai_folder(tiny_decoder(), tmp_path / "no" / "folder")


def written(folder: Path, count: int) -> list[int]:
    """Greedy tokens that onnxruntime-genai writes behind PROMPT."""
    og = importlib.import_module("onnxruntime_genai")
    model = og.Model(str(folder))
    tokens = og.Tokenizer(model).encode(PROMPT)
    assert bytes(list(tokens)) == PROMPT.encode()
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=len(tokens) + count, do_sample=False)
    generator = og.Generator(model, parameters)
    generator.append_tokens(tokens)
    found = []
    while not generator.is_done():
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_genai_writes_the_tokens_of_our_own_loop(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime_genai")
    source = tiny_decoder(dataclasses.replace(TINY, depth=2))
    made = source if kind == "float" else onnxq.quantize_dynamic(source, objective="size")
    folder = genai_folder(made, tmp_path / "made")
    prompt = np.frombuffer(PROMPT.encode(), np.uint8).astype(np.int64)
    own = greedy(folder / "model.onnx", prompt, COUNT)
    generated = written(folder, COUNT)
    assert generated == own[: len(generated)].tolist()
    assert len(generated) == COUNT or generated[-1] == 0


def four_bits(model: ir.Model) -> ir.Model:
    return onnxq.quantize_weights(model, check=onnxq.Check.NONE)


def four_bits_with_tables(model: ir.Model) -> ir.Model:
    return onnxq.quantize_weights(
        model, scheme="symmetric", embedding_bits=4, check=onnxq.Check.NONE
    )


def four_bits_and_int8_cache(model: ir.Model) -> ir.Model:
    seen = windows(bytes_of(MODELS / "persuasion.txt"), 256)[:4]
    return onnxq.quantize_cache(four_bits(model), as_samples(model, seen))


@pytest.mark.oracle
@pytest.mark.nightly
@pytest.mark.parametrize("make", [four_bits, four_bits_with_tables, four_bits_and_int8_cache])
def test_genai_writes_200_tokens_of_the_trained_decoder_as_our_own_loop(
    make: Callable[[ir.Model], ir.Model], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime_genai")
    folder = genai_folder(make(load_genai_decoder()), tmp_path / "made", tokens=Tokens(end=0))
    prompt = np.frombuffer(PROMPT.encode(), np.uint8).astype(np.int64)
    own = greedy(folder / "model.onnx", prompt, 200)
    assert written(folder, 200) == own.tolist()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(OutputError, match="notes' is a file; wanted a folder"):
        genai_folder(tiny_decoder(), tmp_path / "notes")


def config_of(folder: Path) -> dict[str, object]:
    model: dict[str, object] = json.loads((folder / "genai_config.json").read_text("utf-8"))[
        "model"
    ]
    return {name: model[f"{name}_token_id"] for name in ("bos", "eos", "pad")}


def test_special_tokens_are_those_of_the_files_beside_model_and_tokenizer(tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    assert config_of(genai_folder(tmp_path / "m.onnx", tmp_path / "a")) == {
        "bos": 0, "eos": 0, "pad": 0,
    }  # fmt: skip
    (tmp_path / "config.json").write_text('{"bos_token_id": 4, "eos_token_id": 5}', "utf-8")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}', "utf-8")
    assert config_of(genai_folder(tmp_path / "m.onnx", tmp_path / "b")) == {
        "bos": 4, "eos": [7, 8], "pad": 7,
    }  # fmt: skip
    own = '{"model": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}}'
    (tmp_path / "genai_config.json").write_text(own, "utf-8")
    assert config_of(genai_folder(tmp_path / "m.onnx", tmp_path / "c")) == {
        "bos": 1, "eos": 2, "pad": 3,
    }  # fmt: skip
    named = genai_folder(tmp_path / "m.onnx", tmp_path / "d", tokens=Tokens(end=(9, 10)))
    assert config_of(named) == {"bos": 1, "eos": [9, 10], "pad": 3}


@pytest.mark.parametrize("text", ["no JSON", '{"model": {"eos_token_id": "end"}}', "[]"])
def test_files_without_special_tokens_are_refused_by_name(text: str, tmp_path: Path) -> None:
    onnxq.save(tiny_decoder(), tmp_path / "m.onnx")
    (tmp_path / "genai_config.json").write_text(text, "utf-8")
    with pytest.raises(ModelError, match="special tokens"):
        genai_folder(tmp_path / "m.onnx", tmp_path / "made")
    assert not (tmp_path / "made").exists()
