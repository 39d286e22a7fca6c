"""Axes of size 1 put in."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import ints, normal
from onnxq.operators._channel_scales import reshaped
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("two axes", (normal(2, 3), ints(0, 3)), (1,))
    yield Case("negative axis", (normal(2, 3), ints(-1)), (1,))
    yield Case("rank 0", (normal(), ints(0)), (1,))
    yield Case("empty batch", (normal(0, 3), ints(1)), (1,))


@selection("Unsqueeze", cases=cases, before=reshaped)
def unsqueeze(call: Call, x: IntArray) -> Array:
    """Y = X with axes of size 1 at the given places of Y; ONNX Unsqueeze-13."""
    axes = call.plain(1)
    if axes.ndim > 1:
        raise call.shape_error(f"axes have shape {axes.shape}; wanted a vector, or one number.")
    # ONNX wants a vector; ONNX Runtime takes one number, here alone
    return np.expand_dims(x, tuple(int(axis) for axis in axes.ravel()))
