"""Metrics of what a model is for: beside its float model, without labels; bits per token of text.

    found = onnxq.metrics.Boxes()
    for batch in batches:
        found.update(run_float(batch), run_quantized(batch))     # {output: array} each
    print(found.f1, found.mean_ap, found.layout.words)

`onnxq tune --metric boxes|map|masks|words|frames|bits` takes each by name.
"""

from onnxq.metrics.bits import (
    Bits,
    as_samples,
    bits_in_windows,
    bits_with_cache,
    bytes_of,
    minus_bits,
    windows,
)
from onnxq.metrics.boxes import Boxes
from onnxq.metrics.classes import Frames, Masks
from onnxq.metrics.float_agreement import FloatAgreement, LayoutError
from onnxq.metrics.words import Words

__all__ = [
    "Bits",
    "Boxes",
    "FloatAgreement",
    "Frames",
    "LayoutError",
    "Masks",
    "Words",
    "as_samples",
    "bits_in_windows",
    "bits_with_cache",
    "bytes_of",
    "minus_bits",
    "windows",
]
