"""Metrics of language models: bits per token of text."""

from onnxq.metrics.bits import (
    Bits,
    as_samples,
    bits_in_windows,
    bits_with_cache,
    bytes_of,
    minus_bits,
    windows,
)

__all__ = [
    "Bits",
    "as_samples",
    "bits_in_windows",
    "bits_with_cache",
    "bytes_of",
    "minus_bits",
    "windows",
]
