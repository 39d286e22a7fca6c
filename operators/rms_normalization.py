"""Root mean square normalization."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from onnxq.operator import Case, NodeCall, Normalizing, Reals
from onnxq.operator.examples import normal
from onnxq.operators._normalize import (
    EPSILON,
    averages_from_axis,
    axes_from,
    normalization,
    root_mean_square_normalized,
)


def cases() -> Iterable[Case]:
    """Axes, rows of zeros, empty batch."""
    x, scale = normal(3, 5, 8), normal(8, seed=1)
    yield Case("plain", (x, scale), (1,), opset=23)
    yield Case("large epsilon", (x, scale), (1,), {"epsilon": 0.1}, opset=23)
    yield Case("two axes", (x, normal(5, 8, seed=1)), (1,), {"axis": 1}, opset=23)
    yield Case("scale computed at run time", (x, scale), opset=23)
    zeros = x * (np.arange(3, dtype=np.float32) > 0).reshape(3, 1, 1)
    yield Case("rows of zeros", (zeros, scale), (1,), opset=23)
    yield Case("empty batch", (normal(0, 5, 8), scale), (1,), opset=23)


def averages(call: NodeCall) -> Normalizing:
    """Means of squares over the axes from `axis` on."""
    return replace(averages_from_axis(call), centred=False)


@normalization("RMSNormalization", cases=cases, averages=averages, rows=True)
def rms_normalization(x: Reals, scale: Reals, *, axis: int = -1, epsilon: float = EPSILON) -> Reals:
    """Y = X / sqrt(mean(X^2) + epsilon) * scale over the axes from `axis` on.

    ONNX RMSNormalization-23.
    """
    return root_mean_square_normalized(x, axes_from(axis, x.ndim), epsilon) * scale
