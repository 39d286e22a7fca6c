"""A range of every axis."""

from collections.abc import Iterable

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import ints, normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    x = normal(4, 5, 6)
    yield Case("two axes", (x, ints(1, 2), ints(3, 5), ints(0, 2)), (1, 2, 3))
    yield Case("no axes", (x, ints(1), ints(3)), (1, 2))
    yield Case("steps", (x, ints(0, 0), ints(9, 9), ints(0, -1), ints(2, 3)), (1, 2, 3, 4))
    yield Case("backwards", (x, ints(9), ints(-(2**40)), ints(1), ints(-2)), (1, 2, 3, 4))
    yield Case("ends computed at run time", (x, ints(1), ints(-1), ints(1)))
    yield Case("nothing left", (x, ints(3), ints(3)), (1, 2))
    yield Case("empty batch", (normal(0, 5), ints(1), ints(3), ints(1)), (1, 2, 3))


@selection("Slice", cases=cases)
def sliced(call: Call, x: IntArray) -> Array:
    """Y = X[start : end : step] along the given axes; ONNX Slice-13."""
    starts, ends = call.vector(1), call.vector(2)
    count = len(starts)
    axes, steps = (call.optional_vector(slot) for slot in (3, 4))
    along = range(count) if axes is None else axes
    by = [1] * count if steps is None else steps
    if not len(along) == len(by) == len(ends) == count:
        raise call.shape_error(
            f"{count} starts, {len(ends)} ends, {len(along)} axes, {len(by)} steps."
        )
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, starts, ends, by, strict=True):
        index[axis] = _range(start, end, step, x.shape[axis])
    return x[tuple(index)].copy()


def _range(start: int, end: int, step: int, size: int) -> slice:
    """ONNX's bounds, which differ from Python's where a backward range starts before the first."""
    if size == 0 or step > 0:
        return slice(start, end, step)
    first = min(max(start + size * (start < 0), 0), size - 1)
    last = min(max(end + size * (end < 0), -1), size - 1)
    return slice(first, None if last < 0 else last, step)
