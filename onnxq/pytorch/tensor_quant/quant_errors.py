"""The documented TypeError and ValueError, which are onnxq's QConfigError too (exit code 5)."""

from __future__ import annotations

from onnxq.errors import QConfigError


class QuantTypeError(QConfigError, TypeError):
    """An argument of a type that quantization does not take, or the wrong kind of tensor."""


class QuantValueError(QConfigError, ValueError):
    """An argument whose value no quantization has: a negative amax, 1 bit, a shape that differs."""
