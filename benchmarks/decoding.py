"""Speed of a group-wise decoder: a token, a prompt, and tokens per second in onnxruntime-genai.

    pip install --target DIR --no-deps onnxruntime-genai
    PYTHONPATH=DIR python -m benchmarks decoding

A Llama of 48 million parameters with random weights, written by the model builder of
onnxruntime-genai in float and in its own int4. onnxq and ONNX Runtime's quantizers read the float
file. One thread, CPU time; what is compared takes turns in every round.
"""

from __future__ import annotations

import functools
import importlib
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.options import with_rounds
from benchmarks.harness.table import RATIO, Row, Table
from onnxq.graph.io import load
from onnxq.language.decoder import Decoder
from onnxq.language.genai_folder import tokenizer_files
from scripts import _timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PAST, PROMPT = 256, 64
"""Tokens in the cache of a token that is timed; tokens of a prompt."""
WRITTEN = 24
"""Tokens that onnxruntime-genai writes in a run."""
GROUP_SIZE = 32
FLOAT, PEER, ORT_AFFINE, ORT_INT8 = "float", "genai builder int4", "ORT 4 bits, affine", "ORT int8"
FILES = Table(
    "files",
    {
        **{"": "", "MB": ".1f", "token over float": RATIO, "prompt over float": RATIO},
        **{"peer": "", "token": RATIO, "prompt": RATIO},
    },
)
TOKENS = Table("tokens", {"": "", "tokens per CPU second": ".0f", f"time over {PEER}": RATIO})
PEERS = {
    "onnxq 4 bits, symmetric": PEER,
    "onnxq 4 bits, affine": ORT_AFFINE,
    "onnxq 4 bits, symmetric, tables 4 bits": PEER,
    "onnxq int8": ORT_INT8,
}
"""Ours -> the peer of its form."""
WRITERS = (FLOAT, PEER, "onnxq 4 bits, symmetric", "onnxq int8")


@dataclass(frozen=True, slots=True)
class Built:
    """Files of one decoder: name -> folder that onnxruntime-genai loads."""

    folders: Mapping[str, Path]

    def model(self, name: str) -> Path:
        """File of the model."""
        return self.folders[name] / "model.onnx"


def transformer(folder: Path) -> None:
    """Writes the module, with the tokenizer of bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=8,  # not 4: the builder takes any layer with 256 results for the head
        max_position_embeddings=1024,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model: Any = LlamaForCausalLM(config)
    model.eval().save_pretrained(folder)
    for name, text in tokenizer_files().items():
        (folder / name).write_text(json.dumps(text), "utf-8")


def by_builder(source: Path, folder: Path, precision: str) -> Path:
    """Folder that the builder of onnxruntime-genai writes."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", source, "-i", source]
    subprocess.run(
        [*map(str, command), "-o", str(folder), "-p", precision, "-e", "cpu"],
        check=True,
        capture_output=True,
    )
    config = folder / "genai_config.json"
    text = json.loads(config.read_text("utf-8"))
    text["model"]["decoder"]["session_options"]["intra_op_num_threads"] = 1
    config.write_text(json.dumps(text), "utf-8")
    return folder


def beside(folder: Path, float_folder: Path, write: Callable[[Path, Path], object]) -> Path:
    """A folder with the float one's configuration, and the model that is written."""
    folder.mkdir()
    for file in float_folder.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    write(float_folder / "model.onnx", folder / "model.onnx")
    return folder


def ours(scheme: str, embedding_bits: int | None, source: Path, target: Path) -> None:
    """Writes group-wise weights."""
    made = onnxq.quantize_weights(
        source,
        method="rtn",
        group_size=GROUP_SIZE,
        scheme=scheme,
        embedding_bits=embedding_bits,
        check=onnxq.Check.NONE,
    )
    made.save(target)


def our_int8(source: Path, target: Path) -> None:
    """Writes int8."""
    onnxq.quantize_dynamic(source, objective="size", check=onnxq.Check.NONE).save(target)


def their_int8(source: Path, target: Path) -> None:
    """Writes ONNX Runtime's int8, a scale per column, as ours has."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(source, target, per_channel=True, weight_type=QuantType.QInt8)


def their_affine(source: Path, target: Path) -> None:
    """Writes ONNX Runtime's group-wise weights."""
    from onnxruntime.quantization import matmul_nbits_quantizer as nbits

    quantizer = nbits.MatMulNBitsQuantizer(
        onnx.load(source), block_size=GROUP_SIZE, is_symmetric=False, accuracy_level=4
    )
    quantizer.process()
    onnx.save(quantizer.model.model, target)


def build(folder: Path) -> Built:
    """Every form of the decoder."""
    source = folder / "module"
    transformer(source)
    plain = by_builder(source, folder / "float", "fp32")
    ways: dict[str, Callable[[Path, Path], object]] = {
        "onnxq 4 bits, symmetric": functools.partial(ours, "symmetric", None),
        "onnxq 4 bits, affine": functools.partial(ours, "affine", None),
        "onnxq 4 bits, symmetric, tables 4 bits": functools.partial(ours, "symmetric", 4),
        "onnxq int8": our_int8,
        ORT_AFFINE: their_affine,
        ORT_INT8: their_int8,
    }
    made = {name: beside(folder / str(i), plain, w) for i, (name, w) in enumerate(ways.items())}
    return Built({FLOAT: plain, PEER: by_builder(source, folder / "int4", "int4"), **made})


def feeds(model: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs of one token behind a cache, and of a prompt."""
    decoder, rng = Decoder.of(load(model)), np.random.default_rng(0)
    heads, size = decoder.cache
    past = {n: rng.normal(0, 1, (1, heads, PAST, size)).astype(np.float32) for n in decoder.past}
    token = decoder.feeds(np.array([[65]]), past)
    return token, decoder.feeds(rng.integers(32, 127, (1, PROMPT)), decoder.empty(1))


def writer(folder: Path) -> Callable[[], None]:
    """A run that writes a text in onnxruntime-genai."""
    og = importlib.import_module("onnxruntime_genai")

    model = og.Model(str(folder))
    prompt = og.Tokenizer(model).encode("It is a truth")

    def write() -> None:
        parameters = og.GeneratorParams(model)
        size = len(prompt) + WRITTEN
        parameters.set_search_options(max_length=size, min_length=size, do_sample=False)
        generator = og.Generator(model, parameters)
        generator.append_tokens(prompt)
        while not generator.is_done():
            generator.generate_next_token()

    return write


@benchmark(FILES, TOKENS, needs=("torch", "transformers", "onnxruntime-genai"))
@with_rounds(30)
def measure(rounds: int) -> Iterator[Row]:
    """Times of every file; then of writing text in onnxruntime-genai."""
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))
        sessions = {name: _timing.session(built.model(name)) for name in built.folders}
        times = [
            _timing.taking_turns(_timing.runs_on(sessions, given), rounds)
            for given in feeds(built.model(FLOAT))
        ]
        for name, place in built.folders.items():
            over = [_timing.paired_ratio(each[name], each[FLOAT]).cell for each in times]
            peer = PEERS.get(name)
            beside: list[Any] = ["", ""]
            if peer is not None:
                beside = [_timing.paired_ratio(each[name], each[peer]).cell for each in times]
            size = sum(file.stat().st_size for file in place.glob("model.onnx*")) / 1e6
            yield FILES.row(name, size, *over, peer or "", *beside)
        written = _timing.taking_turns({n: writer(built.folders[n]) for n in WRITERS}, rounds)
    for name, seconds in written.items():
        ratio = _timing.paired_ratio(seconds, written[PEER])
        yield TOKENS.row(name, WRITTEN / float(np.median(seconds)), ratio.cell)
