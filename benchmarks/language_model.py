"""Bits per byte, size and speed of the decoder of models/ as float, int8, 4 and 2 bits: a table.

    python -m benchmarks language_model

Ours beside ONNX Runtime's own quantizers: the same file, blocks of 32, accuracy level 4, the head
in float. Samples are windows of text that the decoder was trained on, bits those of text that it
never saw. KL: divergence of the next byte's distribution from float's in thousandths of a bit, with
its standard error over windows; same: share of bytes whose likeliest successor is float's. Times
are CPU seconds of one thread over float's, runs taking turns.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
import onnx_ir as ir
from onnxruntime.quantization import matmul_nbits_quantizer as theirs

import onnxq
from benchmarks.harness.benchmark import benchmark
from benchmarks.harness.table import RATIO, Row, Table
from models.genai_decoder import load_genai_decoder
from onnxq.checking.divergence import Divergence
from onnxq.language.decoder import Decoder
from onnxq.language.token_run import TokenRun
from onnxq.metrics import as_samples, bits_in_windows, bytes_of, windows
from scripts import _timing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from onnxq.core.arrays import Array

    Maker = Callable[[ir.Model, dict[str, Array]], ir.Model]

FLOAT = "float"
WEIGHTS = Table(
    "weights",
    {
        **{"weights": "", "MB": ".2f", "KL, mbit": "{0[0]:.2f} +- {0[1]:.2f}", "same": ".4f"},
        **{"bits per byte": ".4f", "SQNR, dB": ".1f"},
    },
)
TIMES = Table("times", {"weights": "", "a token": RATIO, "256 tokens": RATIO})
TEXTS = Path(__file__).resolve().parent.parent / "models"
GROUP_SIZE = 32
HEAD = "/lm_head/MatMul"
WINDOW = 512
PREFILL = 256


def ours(bits: int, method: str, scheme: str = "affine") -> Maker:
    """Our group-wise weights, the embedding and the head in float."""

    def make(model: ir.Model, samples: dict[str, Array]) -> ir.Model:
        given = samples if method == "gptq" else None
        return onnxq.quantize_weights(
            model,
            given,
            bits=bits,
            group_size=GROUP_SIZE,
            method=method,
            scheme=scheme,
            exclude=(HEAD,),
            check=onnxq.Check.NONE,
        )

    return make


def with_tables(embedding_bits: int) -> Maker:
    """Our 4 bits, and one matrix for embedding and head."""

    def make(model: ir.Model, samples: dict[str, Array]) -> ir.Model:
        return onnxq.quantize_weights(
            model, samples, embedding_bits=embedding_bits, check=onnxq.Check.NONE
        )

    return make


def with_int8_cache(model: ir.Model, samples: dict[str, Array]) -> ir.Model:
    """Our 4 bits, and keys and values in int8."""
    return onnxq.quantize_cache(ours(4, "gptq")(model, samples), samples)


def of_ort(config: Callable[[], theirs.WeightOnlyQuantConfig]) -> Maker:
    """Group-wise weights by ONNX Runtime's quantizer."""

    def make(model: ir.Model, _: dict[str, Array]) -> ir.Model:
        quantizer = theirs.MatMulNBitsQuantizer(
            ir.to_proto(model),
            block_size=GROUP_SIZE,
            accuracy_level=4,
            nodes_to_exclude=[HEAD],
            algo_config=config(),
        )
        quantizer.process()
        made: onnx.ModelProto = quantizer.model.model
        return ir.from_proto(made)

    return make


def default(bits: int, symmetric: int) -> Callable[[], theirs.WeightOnlyQuantConfig]:
    """Configuration of ONNX Runtime's round-to-nearest."""

    def make() -> theirs.WeightOnlyQuantConfig:
        return theirs.DefaultWeightOnlyQuantConfig(
            block_size=GROUP_SIZE, is_symmetric=bool(symmetric), accuracy_level=4, bits=bits
        )

    return make


def int8(model: ir.Model, _: dict[str, Array]) -> ir.Model:
    """Dynamic int8."""
    return onnxq.quantize_dynamic(model, objective="size")


MAKERS: dict[str, Maker] = {
    "int8, quantize-dynamic": int8,
    **{f"{bits} bits, {m}": ours(bits, m) for bits in (8, 4, 2) for m in ("rtn", "hqq", "gptq")},
    **{f"4 bits, {m}, symmetric": ours(4, m, "symmetric") for m in ("rtn", "gptq")},
    **{f"{b} bits, {m}, real": ours(b, m, "real") for b in (4, 2) for m in ("hqq", "gptq")},
    "4 bits, gptq, tables 8 bits": with_tables(8),
    "4 bits, gptq, tables 4 bits": with_tables(4),
    "4 bits, gptq, int8 cache": with_int8_cache,
    "4 bits, ORT RTN symmetric": of_ort(default(4, 1)),
    "4 bits, ORT RTN affine": of_ort(default(4, 0)),
    "4 bits, ORT k_quant": of_ort(theirs.KQuantWeightOnlyQuantConfig),
    "4 bits, ORT HQQ": of_ort(lambda: theirs.HQQWeightOnlyQuantConfig(block_size=GROUP_SIZE)),
    "2 bits, ORT RTN affine": of_ort(default(2, 0)),
    "2 bits, ORT HQQ": of_ort(
        lambda: theirs.HQQWeightOnlyQuantConfig(block_size=GROUP_SIZE, bits=2)
    ),
    "8 bits, ORT RTN affine": of_ort(default(8, 0)),
}


def beside_float(
    model: ir.Model, source: ir.Model, text: Array
) -> tuple[list[float], float, float]:
    """(KL and its standard error in mbit, share of same likeliest bytes, SQNR in dB)."""
    kl, same, signal, noise = Divergence(), [], 0.0, 0.0
    with TokenRun(source, threads=1) as exact, TokenRun(model, threads=1) as run:
        for window in text:
            x, y = (each.whole(window[None]).astype(np.float64) for each in (exact, run))
            kl.update(x, y)
            same.append(np.mean(x.argmax(-1) == y.argmax(-1)))
            signal += float(np.square(x).sum())
            noise += float(np.square(x - y).sum())
    assert kl.bits is not None
    mbits = [1e3 * kl.bits, 1e3 * (kl.error or 0.0)]
    return mbits, float(np.mean(same)), 10 * math.log10(signal / noise)


def speed(model: ir.Model, source: ir.Model, rounds: int) -> list[list[float]]:
    """Time of a token behind 256, and of 256 tokens at once, over float's."""
    mine, floats = (_runs(each) for each in (model, source))
    return [_timing.ratio_of(a, b, rounds).cell for a, b in zip(mine, floats, strict=True)]


def _runs(model: ir.Model) -> list[Callable[[], object]]:
    """Runs of one token behind 256, and of 256 tokens; a cache of int8 is fed integers."""
    decoder, rng = Decoder.of(model), np.random.default_rng(0)
    session = _timing.session(model)
    past = {
        name: rng.normal(0, 1 if empty.dtype == np.float32 else 40, (1, 2, PREFILL, 64))
        for name, empty in decoder.empty(1).items()
    }
    kinds = {name: empty.dtype for name, empty in decoder.empty(1).items()}
    step = decoder.feeds(np.array([[65]]), {n: x.astype(kinds[n]) for n, x in past.items()})
    prefill = decoder.feeds(rng.integers(32, 127, (1, PREFILL)), decoder.empty(1))
    return [functools.partial(session.run, None, feeds) for feeds in (step, prefill)]


def rows(name: str, text: Array, samples: dict[str, Array], rounds: int) -> Iterator[Row]:
    """Rows of one file; where a quantizer raises, its words."""
    source = load_genai_decoder()
    try:
        made = source if name == FLOAT else MAKERS[name](load_genai_decoder(), samples)
    except Exception as error:  # whatever another tool raises
        yield WEIGHTS.row(name, f"{type(error).__name__}: {error}"[:120], *[None] * 4)
        return
    size = len(ir.to_proto(made).SerializeToString()) / 1e6
    bits = bits_in_windows(made, text, threads=1).per_token
    kl, same, loss = (None,) * 3 if name == FLOAT else beside_float(made, source, text)
    yield WEIGHTS.row(name, size, kl, same, bits, loss)
    if rounds and name != FLOAT:
        yield TIMES.row(name, *speed(made, source, rounds))


@benchmark(WEIGHTS, TIMES)
@click.option("--windows", "held", default=64, help="of 512 bytes held out")
@click.option("--samples", "given", default=64, help="windows of 512 to quantize with")
@click.option("--rounds", default=30, help="0: no times")
@click.option("--only", default="", help="ways whose name holds this")
def measure(held: int, given: int, rounds: int, only: str) -> Iterator[Row]:
    """Size, bits per byte and SQNR of each file, and its times."""
    text = windows(bytes_of(TEXTS / "northanger_abbey.txt"), WINDOW)[:held]
    seen = windows(bytes_of(TEXTS / "persuasion.txt"), WINDOW)[:given]
    samples = as_samples(load_genai_decoder(), seen)
    for name in (FLOAT, *MAKERS):
        if only in name:
            yield from rows(name, text, samples, rounds)
