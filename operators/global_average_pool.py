"""Mean over all spatial axes."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import requantize
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import normal
from onnxq.operators._channel_scales import per_channel_alone

LARGEST, SMALLEST = np.float32(256), np.float32(2.0**-32)
"""ONNX Runtime's kernel takes x_scale / (y_scale * count) from SMALLEST to below LARGEST."""


@op.register
class GlobalAveragePool(op.Operator):
    """Y[n, c] = mean of X[n, c] over its spatial axes, which stay; ONNX GlobalAveragePool-1.

    Integers: com.microsoft QLinearGlobalAveragePool,
    requantize(sum x - count * x_zp, x_scale / (y_scale * count)).
    """

    op_type = "GlobalAveragePool"
    gives_means = True

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise in cost: one addition per input element."""
        return op.Rule(op.OpCategory.ELEMENTWISE)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling channels of the input scales the same channels of the result."""
        return ({0: scale},) if per_channel_alone(scale) else ()

    def cases(self) -> Iterable[op.Case]:
        yield op.Case("2d", (normal(2, 3, 5, 4),))
        yield op.Case("1d", (normal(2, 3, 7),))
        yield op.Case("3d", (normal(2, 3, 2, 3, 4),))
        yield op.Case("one element", (normal(2, 3, 1, 1),))
        yield op.Case("empty batch", (normal(0, 3, 5, 4),))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearGlobalAveragePool, channels first."""
        return site.qlinear("QLinearGlobalAveragePool", {"channels_last": 0})

    def misfit(self, call: op.Call) -> str:
        """Scales too far apart, as where the mean was 0 in all samples; whatever the count is."""
        return scales_apart(call)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        """Integers of Y. Raises ShapeError for rank below 3, no elements to average, wrong dtype.

        Raises UnsupportedError where ONNX Runtime's kernel refuses the scales.
        """
        x = call.integers(0)
        count = int(np.prod(x.shape[2:]))
        if x.ndim < 3 or count == 0:
            raise call.shape_error(f"x {x.shape}; wanted (N, C, *spatial), no size 0.")
        p, q = call.qparams_in(0), call.qparams_out()
        total = x.sum(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=np.int32)
        total = total - np.int32(count) * p.zero_point.astype(np.int32)
        multiplier = np.asarray(p.scale / (q.scale * np.float32(count)))
        if not SMALLEST <= multiplier < LARGEST:
            raise UnsupportedError(
                f"{call.op_type}: x_scale / (y_scale * count) is {multiplier:.3g}; ONNX "
                f"Runtime's kernel takes {SMALLEST:.3g} to less than {LARGEST:.0f}."
            )
        return (requantize(np.asarray(total), multiplier, q),)


def scales_apart(call: op.Call) -> str:
    """Why the kernel refuses these scales whatever the count is; empty: it does not."""
    p, q = call.qparams_in(0), call.qparams_out()
    if p.scale < LARGEST * q.scale:
        return ""
    return (
        f"its input has steps of {p.scale:.3g} and its result of {q.scale:.3g}: ONNX Runtime's "
        f"kernel takes less than {LARGEST:.0f} times larger ones"
    )
