"""All axes as two."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._channel_scales import reshaped
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("plain", (normal(2, 3, 4),))
    yield Case("axis 0", (normal(2, 3, 4),), (), {"axis": 0})
    yield Case("negative axis", (normal(2, 3, 4),), (), {"axis": -1})
    yield Case("axis behind the last", (normal(2, 3),), (), {"axis": 2})
    yield Case("empty batch", (normal(0, 3, 4),))


@selection("Flatten", cases=cases, before=reshaped)
def flatten(call: Call, x: IntArray) -> Array:
    """Y[i, j] = X with the axes before `axis` as rows, the others as columns; ONNX Flatten-13."""
    axis = call.integer("axis", 1)
    if not -x.ndim <= axis <= x.ndim:
        raise call.shape_error(f"axis {axis} is outside x of shape {x.shape}.")
    axis += x.ndim if axis < 0 else 0
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))
