"""The same elements in another shape."""

from collections.abc import Iterable

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import ints, normal
from onnxq.operators._channel_scales import reshaped
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("flat", (normal(2, 3, 4), ints(-1)), (1,))
    yield Case("kept and inferred sizes", (normal(2, 3, 4), ints(0, -1)), (1,))
    yield Case("shape computed at run time", (normal(2, 6), ints(3, 4)))
    yield Case("allowzero", (normal(0, 3), ints(3, 0)), (1,), {"allowzero": 1})
    yield Case("empty batch", (normal(0, 3, 4), ints(0, 12)), (1,))


@selection("Reshape", cases=cases, before=reshaped)
def reshape(call: Call, x: IntArray) -> Array:
    """Y = X with shape S; ONNX Reshape-14.

    A 0 in S keeps that size of X (unless allowzero is set), -1 is what is left.
    """
    wanted = call.vector(1)
    if not call.integer("allowzero", 0):
        wanted = [x.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    return x.reshape(wanted)
