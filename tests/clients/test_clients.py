"""Hub folders of an encoder, a ViT and a decoder, loaded by transformers.js and by optimum.

They are loaded as their users do, each variant by name, with the tokenizer's files, and the
decoder with its cache. What float gives is compared with torch, each variant with float, and the
two clients with each other: their versions of ONNX Runtime differ from that of the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.hub.folder import FLOOR_DB
from onnxq.hub.variants import DEFAULT
from onnxq.observers.tensor_noise import decibels
from tests.this_machine import TARGET

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = ("transformers.js", "optimum")
FILES = dict(
    zip(DEFAULT, ("model", "model_fp16", "model_quantized", "model_q4", "model_q4f16"), strict=True)
)
TEXT, TOKENS, SIDE = "A sentence of words.", 12, 32
LIKE_FLOAT = 80.0
"""SQNR in dB of float32 sums in another order, at least."""
SPECIAL = ("<pad>", "<s>", "</s>")
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}

pytestmark = [pytest.mark.nightly, pytest.mark.oracle]

Given = dict[str, dict[str, list[Any]]]


@pytest.fixture(scope="module")
def clients() -> Path:
    """Where scripts/setup_clients installed them."""
    folder = Path(os.environ.get("ONNXQ_CLIENTS") or ROOT / ".cache" / "clients")
    if not (folder / "stamp").is_file() or shutil.which("node") is None:
        pytest.skip("transformers.js and optimum are not there: run scripts/setup_clients")
    return folder


@pytest.fixture(scope="module")
def pixels() -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).normal(size=(1, 3, SIDE, SIDE)).astype(np.float32)


@pytest.fixture(scope="module")
def modules() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    words = {"vocab_size": 256 + len(SPECIAL), "pad_token_id": 0, **SIZES}
    bert = transformers.BertConfig(**words)
    vit = transformers.ViTConfig(image_size=SIDE, patch_size=8, num_labels=10, **SIZES)
    llama = transformers.LlamaConfig(**words, bos_token_id=1, eos_token_id=2, num_key_value_heads=2)
    made = {
        "encoder": transformers.BertModel(bert, add_pooling_layer=False),
        "vit": transformers.ViTForImageClassification(vit),
        "decoder": transformers.LlamaForCausalLM(llama),
    }
    return {name: module.eval() for name, module in made.items()}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """One that has a token for each byte."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    numbers = {word: number for number, word in enumerate((*SPECIAL, *letters))}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=numbers, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    pad, begin, end = SPECIAL
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token=pad, bos_token=begin, eos_token=end
    )


@pytest.fixture(scope="module")
def folders(
    modules: dict[str, Any], tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    given, hub = tmp_path_factory.mktemp("given"), tmp_path_factory.mktemp("hub")
    for name, module in modules.items():
        module.save_pretrained(given / name)
        if name != "vit":
            tokenizer.save_pretrained(given / name)
            path = given / name / "tokenizer_config.json"
            of_any_version = json.loads(path.read_text("utf-8"))
            of_any_version["tokenizer_class"] = "PreTrainedTokenizerFast"
            path.write_text(json.dumps(of_any_version), "utf-8")
        made = onnxq.hub_folder(given / name, hub / name, target=TARGET)
        assert not made.left_out
    return hub


@pytest.fixture(scope="module")
def loaded(
    clients: Path,
    folders: Path,
    pixels: np.ndarray[Any, np.dtype[np.float32]],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Given]:
    """Outputs of each variant in each client."""
    request = tmp_path_factory.mktemp("request") / "request.json"
    asked = {
        "files": {name: f"{file}.onnx" for name, file in FILES.items()},
        "text": TEXT,
        "tokens": TOKENS,
        "pixels": pixels.ravel().tolist(),
    }
    request.write_text(json.dumps(asked), "utf-8")
    here = Path(__file__).parent
    shutil.copy(here / "load.mjs", clients)  # Node looks for modules beside the file
    programs = {
        "transformers.js": ["node", str(clients / "load.mjs")],
        "optimum": [str(clients / "venv" / "bin" / "python"), str(here / "load.py")],
    }
    got = {}
    for name, program in programs.items():
        ran = subprocess.run(
            [*program, str(folders), str(request)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        assert not ran.returncode, ran.stderr
        got[name] = json.loads(ran.stdout.splitlines()[-1])
    return got


def sqnr_db(wanted: Any, got: Any) -> float:
    x, y = (np.asarray(each, np.float64).ravel() for each in (wanted, got))
    assert x.shape == y.shape
    return float(decibels(np.sum(x * x), np.sum((x - y) ** 2)))


@pytest.mark.parametrize("client", CLIENTS)
def test_float_gives_what_torch_gives(
    client: str,
    loaded: dict[str, Given],
    modules: dict[str, Any],
    tokenizer: Any,
    pixels: np.ndarray[Any, np.dtype[np.float32]],
) -> None:
    torch = pytest.importorskip("torch")
    got = loaded[client]["fp32"]
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        words = modules["encoder"](ids).last_hidden_state.numpy()
        classes = modules["vit"](torch.from_numpy(pixels)).logits.numpy()
        tokens = modules["decoder"].generate(ids, max_new_tokens=TOKENS, do_sample=False)
    assert sqnr_db(words, got["encoder"]) > LIKE_FLOAT
    assert sqnr_db(classes, got["vit"]) > LIKE_FLOAT
    assert got["decoder"] == tokens.flatten().tolist()


@pytest.mark.parametrize("variant", DEFAULT[1:])
@pytest.mark.parametrize("client", CLIENTS)
def test_each_variant_is_near_float(client: str, variant: str, loaded: dict[str, Given]) -> None:
    floats, got = loaded[client]["fp32"], loaded[client][variant]
    for name in ("encoder", "vit"):
        assert sqnr_db(floats[name], got[name]) > FLOOR_DB
    assert len(got["decoder"]) <= len(floats["decoder"])
    prompt = len(TEXT)
    assert got["decoder"][:prompt] == floats["decoder"][:prompt]


@pytest.mark.parametrize("variant", DEFAULT)
def test_both_clients_give_the_same(variant: str, loaded: dict[str, Given]) -> None:
    one, other = (loaded[client][variant] for client in CLIENTS)
    for name in ("encoder", "vit"):
        # float16 sums of two versions differ by a rounding, integers by steps that follow
        assert sqnr_db(one[name], other[name]) > 2 * FLOOR_DB
