"""Pixels to channels."""

from collections.abc import Iterable

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("plain", (normal(2, 3, 4, 6),), (), {"blocksize": 2})
    yield Case("empty batch", (normal(0, 3, 4, 6),), (), {"blocksize": 2})


@selection("SpaceToDepth", cases=cases, lowered=True)
def space_to_depth(call: Call, x: IntArray) -> Array:
    """Y[n, (i * b + j) * C + c, h, w] = X[n, c, h * b + i, w * b + j]; ONNX SpaceToDepth-13.

    b is the blocksize, C the channels of X.
    """
    block = call.integer("blocksize", 0)
    if x.ndim != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
        raise call.shape_error(f"x {x.shape}, blocksize {block}.")
    n, channels, height, width = x.shape
    y = x.reshape(n, channels, height // block, block, width // block, block)
    y = y.transpose(0, 3, 5, 1, 2, 4)
    return y.reshape(n, channels * block**2, height // block, width // block)
