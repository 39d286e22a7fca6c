"""Layer normalization."""

from collections.abc import Iterable

from onnxq.operator import Case, Reals
from onnxq.operator.examples import normal
from onnxq.operators._normalize import (
    EPSILON,
    averages_from_axis,
    axes_from,
    normalization,
    normalized,
)


def cases() -> Iterable[Case]:
    """Axes, without B, constant rows, empty batch."""
    x, scale, b = normal(3, 5, 8), normal(8, seed=1), normal(8, seed=2)
    yield Case("plain", (x, scale, b), (1, 2))
    yield Case("no bias", (x, scale), (1,), {"epsilon": 0.1})
    both = (x, normal(5, 8, seed=1), normal(5, 8, seed=2))
    yield Case("two axes", both, (1, 2), {"axis": 1})
    yield Case("parameters computed at run time", (x, scale, b))
    yield Case("constant rows", (0 * x + 1, scale, b), (1, 2))
    yield Case("empty batch", (normal(0, 5, 8), scale, b), (1, 2))


@normalization("LayerNormalization", cases=cases, averages=averages_from_axis, rows=True)
def layer_normalization(
    x: Reals, scale: Reals, *bias: Reals, axis: int = -1, epsilon: float = EPSILON
) -> Reals:
    """Y = (X - mean) / sqrt(variance + epsilon) * Scale + B over the axes from `axis` on.

    ONNX LayerNormalization-17.
    """
    return normalized(x, axes_from(axis, x.ndim), epsilon) * scale + sum(bias)
