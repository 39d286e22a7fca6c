"""Batch norm with running statistics, folded into the layer in front of it.

factor = gamma / sqrt(variance + epsilon)                               per channel
batch_norm(w x + b) = (factor w) x + (b - mean) factor + beta
"""

from typing import Any, TypeVar

X = TypeVar("X")


def folded_bias(bias: X | float, factor: X, mean: X, beta: X | float) -> X:
    """Bias of the layer with batch norm folded in: (bias - mean) * factor + beta."""
    centred: Any = bias - mean  # type: ignore[operator]  # of one kind of array, whichever it is
    result: X = centred * factor + beta
    return result
