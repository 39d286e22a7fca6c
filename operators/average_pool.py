"""Mean over windows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize
from onnxq.operator.examples import normal
from onnxq.operators._channel_scales import per_channel_alone
from onnxq.operators._windows import Windows, blocks, pool_geometry, sliding, tap
from onnxq.operators.global_average_pool import GlobalAveragePool, scales_apart


@op.register
class AveragePool(op.Operator):
    """Y[n, c, p] = mean_k X[n, c, p * stride + k - pad]; ONNX AveragePool-22.

    Padding counts by count_include_pad; that with ceil_mode, and dilations, stay float.
    Integers: com.microsoft QLinearAveragePool: dequantize, add tap by tap in float32, divide, and
    saturate(rint(mean / y_scale + y_zp)): the zero point is added before rounding.
    """

    op_type = "AveragePool"
    gives_means = True

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise in cost: one addition per tap."""
        if any(step != 1 for step in node.attributes.get_ints("dilations", [])):
            return op.Float.because(
                "dilations are not 1, which ONNX Runtime's integer kernel does not know"
            )
        if node.attributes.get_int("ceil_mode", 0) and node.attributes.get_int(
            "count_include_pad", 0
        ):
            return op.Float.because(
                "with ceil_mode and count_include_pad, ONNX Runtime's integer kernel counts "
                "what lies beyond the padding too"
            )
        return op.Rule(op.OpCategory.ELEMENTWISE)

    def fused_rule(self, node: ir.Node) -> op.Rule | op.Float:
        """ONNX Runtime fuses every kernel size; with dilations, the file then does not load."""
        dilated = any(step != 1 for step in node.attributes.get_ints("dilations", []))
        return self.rule(node) if dilated else op.Rule(op.OpCategory.ELEMENTWISE)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling channels of the input scales the same channels of the result."""
        return ({0: scale},) if per_channel_alone(scale) else ()

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 7, 6)
        yield op.Case("plain", (x,), (), {"kernel_shape": [2, 3]})
        pads = {"kernel_shape": [3, 3], "pads": [1, 0, 2, 1], "strides": [2, 3]}
        yield op.Case("asymmetric pads, stride", (x,), (), pads)
        yield op.Case("padding counts", (x,), (), {**pads, "count_include_pad": 1})
        yield op.Case(
            "ceil_mode", (x,), (), {"kernel_shape": [2, 2], "strides": [2, 4], "ceil_mode": 1}
        )
        yield op.Case("SAME_UPPER", (x,), (), {"kernel_shape": [4, 2], "auto_pad": "SAME_UPPER"})
        skipping: dict[str, op.AttributeValue] = {
            "kernel_shape": [1, 2],
            "strides": [3, 3],
            "auto_pad": "SAME_LOWER",
        }
        yield op.Case("SAME_LOWER, stride beyond the kernel", (x,), (), skipping)
        yield op.Case("1d", (normal(2, 3, 9),), (), {"kernel_shape": [3], "pads": [1, 1]})
        yield op.Case("3d", (normal(1, 2, 4, 5, 4),), (), {"kernel_shape": [2, 3, 2]})
        yield op.Case("one window over all", (normal(2, 9, 2, 2),), (), {"kernel_shape": [2, 2]})
        yield op.Case("empty batch", (normal(0, 3, 7, 6),), (), {"kernel_shape": [2, 2]})

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearAveragePool, channels first."""
        attributes: dict[str, ir.Attr | int] = {**site.attributes(), "channels_last": 0}
        attributes.pop("dilations", None)
        return site.qlinear("QLinearAveragePool", attributes)

    def misfit(self, call: op.Call) -> str:
        """Scales too far apart for the global kernel, to which a window over all of x goes."""
        return scales_apart(call)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        """Integers of the output. Raises ShapeError where shapes, dtypes or qparams do not fit.

        Raises UnsupportedError where one window sees all and ONNX Runtime refuses the scales.
        """
        x = call.integers(0)
        kernel = call.ints("kernel_shape", [])
        if x.ndim < 3 or not kernel:
            raise call.shape_error(f"x {x.shape}, kernel_shape {kernel}; wanted (N, C, *spatial).")
        p, q = call.qparams_in(0), call.qparams_out()
        windows = pool_geometry(call, x.shape[2:], kernel)
        padded = any(call.ints("pads", []))
        if windows.kernel == x.shape[2:] and math.prod(windows.out) == 1 and not padded:
            # one window, all of x: ONNX Runtime takes its kernel for that, which rounds otherwise
            return GlobalAveragePool().kernel(replace(call, inputs=[x], attributes={}))
        count = _counts(call, x.shape[2:], windows)
        y = np.empty((math.prod(x.shape[:2]), *windows.out), q.dtype.storage)
        zero_point = q.zero_point.astype(np.float32)
        for place, planes in blocks(x, windows):
            taps = sliding(dequantize(planes, p), windows, 0)
            value = np.zeros(taps.shape[: x.ndim], np.float32)
            for index in np.ndindex(*kernel):  # one by one, as ONNX Runtime adds
                value += tap(taps, index)
            value /= count
            value /= q.scale
            value += zero_point
            np.rint(value, out=value)
            y[place] = np.clip(value, q.dtype.qmin, q.dtype.qmax, out=value)[0]
        return (y.reshape(*x.shape[:2], *windows.out),)


def _counts(
    call: op.NodeCall, spatial: tuple[int, ...], windows: Windows
) -> npt.NDArray[np.float32]:
    """Elements that each window averages over: all taps, or those inside x; (*out) or ()."""
    if call.integer("count_include_pad", 0):
        return np.asarray(math.prod(windows.kernel), np.float32)
    inside = sliding(np.ones((1, 1, *spatial), np.float32), windows, 0)
    return np.asarray(inside[0, 0].sum(axis=tuple(range(-len(spatial), 0)), dtype=np.float32))
