"""Channels to pixels."""

from collections.abc import Iterable

from onnxq.operator import Array, Call, Case
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    x = normal(2, 8, 2, 3)
    yield Case("DCR", (x,), (), {"blocksize": 2})
    yield Case("CRD", (x,), (), {"blocksize": 2, "mode": "CRD"})
    yield Case("empty batch", (normal(0, 8, 2, 3),), (), {"blocksize": 2})


@selection("DepthToSpace", cases=cases)
def depth_to_space(call: Call, x: IntArray) -> Array:
    """Y[n, c, h * b + i, w * b + j] = X[n, d, h, w]; ONNX DepthToSpace-13.

    Mode DCR: d = (i * b + j) * C + c; CRD: d = (c * b + i) * b + j;
    b is the blocksize, C = channels / b^2.
    """
    block = call.integer("blocksize", 0)
    if x.ndim != 4 or block < 1 or x.shape[1] % block**2:
        raise call.shape_error(f"x {x.shape}, blocksize {block}.")
    n, depth, height, width = x.shape
    channels = depth // block**2
    if call.text("mode", "DCR") == "DCR":
        y = x.reshape(n, block, block, channels, height, width).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, channels, block, block, height, width).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, channels, height * block, width * block)
