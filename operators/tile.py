"""Copies side by side."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import ints, normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("plain", (normal(2, 3), ints(2, 3)), (1,))
    yield Case("no copies", (normal(2, 3), ints(0, 1)), (1,))
    yield Case("repeats computed at run time", (normal(2, 3), ints(1, 2)))
    yield Case("empty batch", (normal(0, 3), ints(1, 2)), (1,))


@selection("Tile", cases=cases)
def tile(call: Call, x: IntArray) -> Array:
    """Y = X repeated repeats[i] times along axis i; ONNX Tile-13."""
    repeats = call.vector(1)
    if len(repeats) != x.ndim or min(repeats, default=0) < 0:
        raise call.shape_error(
            f"repeats {repeats} for x of shape {x.shape}; wanted one per axis, from 0."
        )
    return np.tile(x, repeats)
