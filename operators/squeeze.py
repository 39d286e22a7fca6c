"""Axes of size 1 taken away."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import ints, normal
from onnxq.operators._channel_scales import reshaped
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("one axis", (normal(2, 1, 3, 1), ints(1)), (1,))
    yield Case("negative axes", (normal(2, 1, 3, 1), ints(-1, -3)), (1,))
    yield Case("all axes", (normal(2, 1, 3, 1),))
    yield Case("empty batch", (normal(0, 1, 3), ints(1)), (1,))


@selection("Squeeze", cases=cases, before=reshaped)
def squeeze(call: Call, x: IntArray) -> Array:
    """Y = X without the given axes of size 1, or without all of them; ONNX Squeeze-13."""
    axes = call.optional_vector(1)
    return np.squeeze(x, None if axes is None else tuple(axes))
