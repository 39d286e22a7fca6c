"""Logits of a decoder whose cache is int8 beside those of the float cache, on samples."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxq.checking.comparison import Comparison
from onnxq.checking.validation import Batch
from onnxq.core.arrays import Array
from onnxq.dtypes import INT8
from onnxq.graph.weights import constant_array
from onnxq.language.decoder import LOGITS, Decoder
from onnxq.ort.runtime import open_session
from onnxq.quantized.output_verdict import OutputVerdict
from onnxq.samples import Samples, input_specs, open_samples
from onnxq.samples.ignored import check_ignored

TRIED = 16
"""Batches that are run; keys and values of all samples are in the scales."""


@dataclass(frozen=True, slots=True)
class CacheVerdict:
    """Verdict on a decoder with its cache in int8.

    Attributes:
        float_bytes, int8_bytes: of the cache, per token.
    """

    batches: int
    logits: OutputVerdict
    float_bytes: int
    int8_bytes: int

    def __str__(self) -> str:
        count = f"{self.batches} batches" if self.batches > 1 else "1 batch"
        return (
            f"verdict: its cache takes {self.int8_bytes} bytes a token in place of "
            f"{self.float_bytes}\n"
            f"  beside the float cache, on {count} of the samples:\n    {self.logits}"
        )


def cache_verdict(
    source: ir.Model, made: ir.Model, samples: str | Path | Samples | Batch | Iterable[Batch]
) -> CacheVerdict:
    """Both decoders' logits on the first samples."""
    given = Samples.of(samples)
    opened = open_samples(given, input_specs(source))
    check_ignored(given)
    sums, hits, rows, batches = Comparison(), 0, 0, 0
    with open_session(source, threads=1) as one, open_session(made, threads=1) as other:
        place = list(one.outputs).index(LOGITS)
        for batch in itertools.islice(opened, TRIED):
            wanted, found = one.run(batch)[place], other.run(_quantized(batch, made))[place]
            sums.update(wanted, found)
            same = np.argmax(wanted, -1) == np.argmax(found, -1)
            hits, rows, batches = hits + int(same.sum()), rows + same.size, batches + 1
    logits = OutputVerdict(LOGITS, sqnr_db=sums.sqnr_db, top1_agreement=hits / max(rows, 1))
    sizes = [_token_bytes(model) for model in (source, made)]
    return CacheVerdict(batches, logits, *sizes)


def _quantized(batch: Batch, made: ir.Model) -> dict[str, Array]:
    """The batch with keys and values as the integers that the int8 cache has."""
    quantized = dict(batch)
    for name, present in Decoder.of(made).keys.items():
        scale = constant_array(made.graph.initializers[f"{present}_scale"])
        past = np.asarray(batch[name], np.float32)
        integers = np.clip(np.rint(past / scale), -INT8.qmax, INT8.qmax)
        quantized[name] = integers.astype(np.int8)
    return quantized


def _token_bytes(model: ir.Model) -> int:
    decoder = Decoder.of(model)
    heads, size = decoder.cache
    dtypes = {spec.name: spec.dtype for spec in decoder.inputs}
    return sum(heads * size * np.dtype(dtypes[name]).itemsize for name in decoder.keys)
