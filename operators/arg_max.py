"""Place of the largest element."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    x = normal(3, 4)
    yield Case("plain", (x,), (), {"axis": 1})
    yield Case("axis dropped", (x,), (), {"axis": -1, "keepdims": 0})
    yield Case("ties", (np.ones((2, 3), np.float32),), (), {"axis": 1})
    yield Case(
        "last of ties", (np.ones((2, 3), np.float32),), (), {"axis": 1, "select_last_index": 1}
    )
    yield Case("empty batch", (normal(0, 3),), (), {"axis": 1})


@selection("ArgMax", cases=cases, outputs=())
def arg_max(call: Call, x: IntArray) -> Array:
    """Y = index of the maximum of X along `axis`; ONNX ArgMax-13.

    Of equals, the first or (select_last_index) the last.
    The result is int64 and not quantized. Numbers with one quantized value count as equal.
    """
    axis = call.axis("axis", 0, x.ndim)
    keep = bool(call.integer("keepdims", 1))
    if not call.integer("select_last_index", 0):
        return np.asarray(np.argmax(x, axis, keepdims=keep))
    last = x.shape[axis] - 1
    return np.asarray(last - np.argmax(np.flip(x, axis), axis, keepdims=keep))
