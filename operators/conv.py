"""Convolution."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import requantize
from onnxq.core.threads import in_parallel, shares
from onnxq.operator.examples import normal
from onnxq.operator.nodes import call_of, has_input, is_constant, sizes
from onnxq.operators._channel_scales import only_along
from onnxq.operators._dynamic import STORED, lower_stored
from onnxq.operators._gemm import centred, furthest, integer_matmul, max_abs, origin, shifted
from onnxq.operators._pair_windows import conv_correction
from onnxq.operators._unfolded import unfolded_conv
from onnxq.operators._windows import Windows, geometry, sliding
from onnxq.qparams import IntArray, QParams
from onnxq.targets.accumulation import EXACT, Accumulator

SPATIAL_RANKS = (1, 2, 3)
SLOW = "ONNX Runtime's ConvInteger takes 4 to 9 times as long as Conv; samples make it QLinearConv"
FEW_CHANNELS = 16
"""Per group. Measured with three spatial axes, float time / integer time: 1 channel .1, 3 channels
.2 to .5, 8 channels .6 to .9, 16 channels 1.0 to 1.6, 32 channels from 1.8 on."""
SLOW_IN_SPACE = (
    "with three spatial axes and {} input channel(s) per group, ONNX Runtime runs it in integers "
    "at 0.1 to 0.9 of float speed"
)
COLUMN_ELEMENTS = 1 << 24  # 64 MiB of float32: images unfolded at once


def filter_shape(node: ir.Node) -> tuple[int, ...] | op.Float:
    """Shape of the weight of a convolution with constants, or why it is none."""
    if not is_constant(node, 1):
        return op.Float.because("its weight is computed at run time; constant weights are needed")
    if has_input(node, 2) and not is_constant(node, 2):
        return op.Float.because("its bias is computed at run time; a constant bias is needed")
    weight = sizes(node, 1)
    if len(weight) - 2 not in SPATIAL_RANKS:
        return op.Float.because(f"its weight has shape {weight}; wanted 1 to 3 spatial axes")
    return weight


@op.register
class Conv(op.Operator):
    """Y[n, o, p] = B[o] + sum_{c, k} X[n, c, p * stride + k * dilation - pad] W[o, c, k].

    ONNX Conv-11, 1, 2 or 3 spatial axes; `group` splits channels. Integers: QLinearConv-10,
    requantize(sum (x - x_zp) (w - w_zp) + b, x_scale * w_scale[o] / y_scale); padding is x_zp.
    """

    op_type = "Conv"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Weight per output channel; a Q behind it, for there is no kernel with float output."""
        weight = filter_shape(node)
        if isinstance(weight, op.Float):
            return weight
        group = node.attributes.get_int("group", 1)
        depthwise = group > 1 and weight[0] == group and weight[1] == 1
        return op.Rule(
            op.OpCategory.COMPUTE,
            weight=op.WeightSlot(1, 0),
            bias=2,
            saturating_pairs=not depthwise,
            pair_axes=(*range(2, len(weight)), 1),
            channelwise=group > 1 and weight[1] == 1,
            named_only="" if depthwise else _why_slow(weight),
        )

    def unfolded(self, node: ir.Node) -> op.Unfolded:
        """Unfolds the input to (windows, channels * kernel elements)."""
        return unfolded_conv(call_of(node), sizes(node, 1))

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling output channels scales their filters and their bias."""
        if not only_along(scale, 1):
            return ()
        return ({1: scale.reshape(-1, *[1] * (scale.ndim - 1)), 2: scale.reshape(-1)},)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 4, 7, 6)
        yield op.Case("plain", (x, normal(3, 4, 3, 3, seed=1), normal(3, seed=2)), (1, 2))
        yield op.Case("no bias, 1x1", (x, normal(5, 4, 1, 1, seed=1)), (1,))
        yield op.Case(
            "asymmetric pads, stride, dilation",
            (x, normal(3, 4, 3, 2, seed=1), normal(3, seed=2)),
            (1, 2),
            {"pads": [2, 0, 1, 3], "strides": [2, 1], "dilations": [1, 2]},
        )
        yield op.Case(
            "groups", (x, normal(6, 2, 3, 3, seed=1)), (1,), {"group": 2, "pads": [1] * 4}
        )
        yield op.Case(
            "depthwise",
            (x, normal(4, 1, 3, 3, seed=1), normal(4)),
            (1, 2),
            {"group": 4, "pads": [1] * 4},
        )
        yield op.Case(
            "depthwise, two outputs each", (x, normal(8, 1, 3, 3, seed=1)), (1,), {"group": 4}
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield op.Case(
                mode, (x, normal(3, 4, 4, 2, seed=1)), (1,), {"auto_pad": mode, "strides": [2, 1]}
            )
        yield op.Case(
            "1d", (normal(2, 3, 9), normal(4, 3, 3, seed=1), normal(4)), (1, 2), {"pads": [1, 0]}
        )
        yield op.Case(
            "3d", (normal(1, 2, 4, 5, 4), normal(3, 2, 2, 3, 2, seed=1), normal(3)), (1, 2)
        )
        yield op.Case("empty batch", (normal(0, 4, 7, 6), normal(3, 4, 3, 3, seed=1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearConv."""
        site.check_pair()
        x = site.scale_and_zero_point("x", site.qparams_in(0))
        w_qparams = site.plan.inputs[1]
        assert w_qparams is not None, "check_pair looked"
        w = site.scale_and_zero_point("w", w_qparams)
        y = site.scale_and_zero_point("y", site.qparams_out())
        bias = [site.inputs[2]] if has_input(site.node, 2) else []
        slots = [site.inputs[0], *x, site.inputs[1], *w, *y, *bias]
        return site.emit(slots, op_type="QLinearConv", attributes=site.attributes())

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return (quantized_conv(call, EXACT),)

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """A constant weight has one scale per output channel; computed in float."""
        if not is_constant(node, 1):
            return op.Float.because(
                "its weight is computed at run time; constant weights are needed"
            )
        return op.DynamicRule((op.DynamicWeight(1, 0),), STORED, missing=SLOW)

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """Conv in float, on weights that are dequantized when a session is made."""
        return lower_stored(site, self.dynamic_rule(site.node))


def _why_slow(weight: tuple[int, ...]) -> str:
    """Why a Conv that is not depthwise is faster in float, or the empty string.

    Channels last, windows with three axes are unfolded tap by tap: one copy of the channels each.
    """
    channels, kernel = weight[1], weight[2:]
    unfolded = len(kernel) == max(SPATIAL_RANKS) and set(kernel) != {1}
    return SLOW_IN_SPACE.format(channels) if channels < FEW_CHANNELS and unfolded else ""


def quantized_conv(call: op.Call, accumulator: Accumulator) -> op.Array:
    """Integers of Y, as `Conv.kernel`, on a machine."""
    x, w = call.integers(0), call.integers(1)
    group = call.integer("group", 1)
    check_shapes(call, x.shape, w.shape)
    x_qparams, y_qparams = call.qparams_in(0), call.qparams_out()
    w_qparams = call.weight_qparams(1, w, 0)
    windows = geometry(call, x.shape[2:], w.shape[2:])
    along = (-1, *[1] * (x.ndim - 2))
    bias = None
    if len(call.inputs) > 2 and call.inputs[2] is not None:
        bias = call.integers(2).astype(np.int32)
        if bias.shape != w.shape[:1]:
            raise call.shape_error(f"bias of shape {bias.shape}; wanted {w.shape[:1]}.")
    multiplier = np.asarray(x_qparams.scale * w_qparams.scale / y_qparams.scale).reshape(along)

    def convolved(images: slice) -> IntArray:
        total = _product(x[images], x_qparams, w, w_qparams, group, windows)
        if not accumulator.exact:
            change = conv_correction(
                x[images], x_qparams, w, w_qparams, group, windows, accumulator
            )
            total = total if change is None else total + change
        if bias is not None:
            total += bias.reshape(along)
        return requantize(total, multiplier, y_qparams)

    parts = in_parallel(convolved, shares(x.shape[0]))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def check_shapes(call: op.NodeCall, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """Guards x (N, C, *spatial) and w (O, C / group, *kernel)."""
    group = call.integer("group", 1)
    kernel = call.ints("kernel_shape", w[2:])
    if len(x) != len(w) or len(x) - 2 not in SPATIAL_RANKS:
        raise call.shape_error(f"x {x} and w {w}; wanted the same rank, 3 to 5.")
    if group < 1 or w[0] % group or w[1] * group != x[1]:
        raise call.shape_error(
            f"x {x}, w {w}, group {group}; wanted {x[1]} = {w[1]} * group channels."
        )
    if tuple(kernel) != w[2:]:
        raise call.shape_error(f"kernel_shape {kernel}, but w is {w}.")


def _product(
    x: IntArray, x_qparams: QParams, w: IntArray, w_qparams: QParams, group: int, windows: Windows
) -> op.Ints:
    """The sums of (x - x_zp) (w - w_zp), exact modulo 2^32.

    (x - x_zp) (w - w_zp) = (x - shift) (w - w_zp) - (x_zp - shift) (w - w_zp); see `origin`.
    """
    rows, w_bound = centred(w, w_qparams), max_abs(w_qparams)
    inner = rows[:1].size
    shift = origin(x_qparams, w_bound, inner)
    offset = int(x_qparams.zero_point) - shift
    largest = furthest(x_qparams.dtype, shift) * w_bound
    total = convolve(shifted(x, shift), rows, group, windows, fill=offset, largest=largest)
    if offset:
        sums = integer_matmul(rows.reshape(-1, inner), np.ones(inner, np.float32), w_bound)
        total -= (sums * np.int32(offset)).reshape(-1, *[1] * (x.ndim - 2))
    return total


def convolve(
    x: op.Singles,
    w: op.Singles,
    group: int,
    windows: Windows,
    *,
    fill: int = 0,
    largest: int | None = None,
) -> op.Ints:
    """The convolution of whole numbers, exact modulo 2^32.

    Args:
        x: float32 (batch, channels, *spatial), whole numbers.
        w: float32 (outputs, channels / group, *kernel), likewise.
        group: channels and outputs are split into this many groups.
        windows: of x.
        fill: what x is padded with.
        largest: a bound on |x| |w|, where one is known without looking at every element.
    Returns:
        int32 (batch, outputs, *windows.out).
    """
    batch, outputs = x.shape[0], w.shape[0]
    rank = len(windows.out)
    taps, places = math.prod(w.shape[1:]), math.prod(windows.out)
    rows = w.reshape(group, outputs // group, taps)
    # (batch, channels, *out, *kernel) -> (batch, channels, *kernel, *out)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    unfolded = sliding(x, windows, fill).transpose(order)
    step = max(1, COLUMN_ELEMENTS // max(group * taps * places, 1))
    parts = [
        integer_matmul(rows, unfolded[i : i + step].reshape(-1, group, taps, places), largest)
        for i in range(0, max(batch, 1), step)
    ]
    total = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return total.reshape(batch, outputs, *windows.out)
