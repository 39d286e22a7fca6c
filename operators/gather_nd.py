"""Slices picked by tuples of indices."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    x = normal(3, 4, 5)
    yield Case("elements", (x, np.array([[0, 1, 2], [2, -1, 0]])), (1,))
    yield Case("slices", (x, np.array([[[0, 1]], [[2, 3]]])), (1,))
    yield Case("batch_dims", (x, np.array([[1], [0], [-1]])), (1,), {"batch_dims": 1})
    yield Case("empty batch", (x, np.zeros((0, 2), np.int64)))


@selection("GatherND", cases=cases, lowered=True)
def gather_nd(call: Call, x: IntArray) -> Array:
    """Y[b, i] = X[b, indices[b, i, 0], indices[b, i, 1], ...]; ONNX GatherND-13.

    b runs over batch_dims axes, i over the others of indices but the last.
    """
    indices, batch = call.plain(1), call.integer("batch_dims", 0)
    lead, depth = indices.shape[:batch], indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or x.shape[:batch] != lead or batch + depth > x.ndim:
        raise call.shape_error(f"x {x.shape}, indices {indices.shape}, batch_dims {batch}.")
    batches = np.indices((*lead, *indices.shape[batch:-1]))[:batch]
    return np.asarray(x[(*batches, *np.moveaxis(indices.astype(np.intp), -1, 0))])
