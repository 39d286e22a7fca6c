"""The tensor itself."""

from collections.abc import Iterable

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("plain", (normal(2, 3),))
    yield Case("rank 0", (normal(),))
    yield Case("empty batch", (normal(0, 3),))


@selection("Identity", cases=cases)
def identity(_: Call, x: IntArray) -> Array:
    """Y = X; ONNX Identity-14."""
    return x.copy()
