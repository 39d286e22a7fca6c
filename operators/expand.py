"""Broadcast to a shape."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import ints, normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("plain", (normal(3, 1), ints(2, 3, 4)), (1,))
    yield Case("shape with ones", (normal(3, 4), ints(1, 1)), (1,))
    yield Case("rank 0", (normal(), ints(2, 2)), (1,))
    yield Case("empty batch", (normal(0, 1), ints(1, 3)), (1,))


@selection("Expand", cases=cases)
def expand(call: Call, x: IntArray) -> Array:
    """Y = X broadcast with a tensor of shape S, both ways; ONNX Expand-13."""
    wanted = call.vector(1)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(wanted))).copy()
