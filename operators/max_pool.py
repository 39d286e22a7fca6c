"""Maximum over windows."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operators._channel_scales import per_channel_alone
from onnxq.operators._windows import Windows, blocks, pool_geometry, sliding, tap
from onnxq.qparams import IntArray


@op.register
class MaxPool(op.Operator):
    """Y[n, c, p] = max_k X[n, c, p * stride + k * dilation - pad]; ONNX MaxPool-12.

    1, 2 or 3 spatial axes. Scales are positive, so the maximum of integers is the integer of the
    maximum; padding is the smallest integer.
    """

    op_type = "MaxPool"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Copies integers, so the output has the input's qparams."""
        if len(node.outputs) > 1 and (node.outputs[1].uses() or node.outputs[1].is_graph_output()):
            return op.Float.because(
                "its Indices output is used, which ONNX Runtime has for float only"
            )
        # ONNX Runtime fuses no MaxPool that has an Indices output, used or not
        lowered = len(node.outputs) > 1
        return op.Rule(
            op.OpCategory.MOVEMENT, shares_qparams=True, lowered=lowered, selects=True, shrinks=True
        )

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling channels of the input scales the same channels of the result."""
        return ({0: scale},) if per_channel_alone(scale) else ()

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 7, 6)
        yield op.Case("plain", (x,), (), {"kernel_shape": [2, 3]})
        yield op.Case(
            "asymmetric pads, stride",
            (x,),
            (),
            {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "strides": [2, 3]},
        )
        yield op.Case("dilation", (x,), (), {"kernel_shape": [3, 2], "dilations": [2, 3]})
        yield op.Case(
            "ceil_mode",
            (x,),
            (),
            {"kernel_shape": [2, 2], "strides": [2, 4], "ceil_mode": 1, "pads": [0, 1, 1, 1]},
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield op.Case(
                mode, (x,), (), {"kernel_shape": [4, 2], "auto_pad": mode, "strides": [2, 1]}
            )
        dilated: dict[str, op.AttributeValue] = {
            "kernel_shape": [3, 3],
            "dilations": [2, 1],
            "auto_pad": "SAME_LOWER",
        }
        yield op.Case("SAME_LOWER, dilation", (x,), (), dilated)
        yield op.Case("1d", (normal(2, 3, 9),), (), {"kernel_shape": [3], "pads": [1, 1]})
        yield op.Case("3d", (normal(1, 2, 4, 5, 4),), (), {"kernel_shape": [2, 3, 2]})
        yield op.Case("empty batch", (normal(0, 3, 7, 6),), (), {"kernel_shape": [2, 2]})

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.on_integers()

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        """Integers of Y, and Indices where the attribute `num_outputs` asks for both."""
        x = call.integers(0)
        kernel = call.ints("kernel_shape", [])
        if x.ndim < 3 or not kernel:
            raise call.shape_error(f"x {x.shape}, kernel_shape {kernel}; wanted (N, C, *spatial).")
        qparams = call.shared()
        windows = pool_geometry(call, x.shape[2:], kernel)
        y = np.empty((math.prod(x.shape[:2]), *windows.out), x.dtype)
        for place, planes in blocks(x, windows):
            y[place] = _maxima(planes, windows, qparams.dtype.qmin)[0]
        y = y.reshape(*x.shape[:2], *windows.out)
        if call.integer("num_outputs", 1) == 1:
            return (y,)
        order = "F" if call.integer("storage_order", 0) else "C"
        return y, _indices(x, windows, qparams.dtype.qmin, order)


def _indices(x: IntArray, windows: Windows, smallest: int, order: str) -> npt.NDArray[np.int64]:
    """Where in x, flattened, each maximum is: the first of equal ones, never the padding.

    The spatial axes are counted in `order`: "C", or "F" for storage_order 1.
    """
    size, count = math.prod(x.shape[2:]), math.prod(windows.kernel)
    inside = np.arange(size).reshape(x.shape[2:], order=order)  # type: ignore[call-overload]  # "C" or "F"
    places = sliding(inside[None, None], windows, -1).reshape(*windows.out, count)
    taps = sliding(x.astype(np.int64), windows, smallest - 1)
    best = taps.reshape(*x.shape[:2], *windows.out, count).argmax(-1)
    found = np.take_along_axis(places[None, None], best[..., None], -1)[..., 0]
    planes = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(windows.out))
    return np.asarray(found + size * planes, np.int64)


def _maxima(x: IntArray, windows: Windows, smallest: int) -> IntArray:
    """Maxima over the windows, one axis after the other: k + k taps and not k * k."""
    rank = len(windows.out)
    for axis in range(rank):
        taps = sliding(x, windows.only(axis, x.shape[2:]), smallest)
        x = tap(taps, [0] * rank).copy()
        for step in range(1, windows.kernel[axis]):
            np.maximum(x, tap(taps, [step if i == axis else 0 for i in range(rank)]), out=x)
    return x
