"""Elements picked by index along one axis."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    x = normal(3, 4)
    yield Case("plain", (x, np.array([[0, 1, -1], [2, 0, 0]])), (1,), {"axis": 1})
    yield Case("rows", (x, np.array([[0, 1, 2, 1]])), (1,))
    yield Case("empty batch", (x, np.zeros((0, 4), np.int64)))


@selection("GatherElements", cases=cases)
def gather_elements(call: Call, x: IntArray) -> Array:
    """Y[i, j, k] = X[i, indices[i, j, k], k] for axis 1 of 3; ONNX GatherElements-13."""
    indices, axis = call.plain(1), call.integer("axis", 0)
    if indices.ndim != x.ndim or not -x.ndim <= axis < x.ndim:
        raise call.shape_error(f"x {x.shape}, indices {indices.shape}, axis {axis}.")
    keep = [slice(n) for n in indices.shape]  # ONNX lets the other axes of indices be shorter
    keep[axis] = slice(None)
    return np.take_along_axis(x[tuple(keep)], indices.astype(np.intp), axis)
