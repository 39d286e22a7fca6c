"""Transposed convolution."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import requantize
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator.examples import normal
from onnxq.operator.nodes import call_of, has_input, is_constant, shape, sizes
from onnxq.operators._dynamic import STORED, lower_stored
from onnxq.operators._gemm import centred
from onnxq.operators._transposed import (
    interleaved,
    phase_axis,
    phase_weight,
    scatter,
    transposed_axes,
)
from onnxq.operators._unfolded import unfolded_transposed
from onnxq.operators.conv import SPATIAL_RANKS, filter_shape
from onnxq.qparams import IntArray, PerChannel, PerTensor, QParams

OUTPUT_CHANNELS = 1  # axis of the weight (channels, outputs / group, *kernel)


@op.register
class ConvTranspose(op.Operator):
    """Y[n, o, i * stride + k * dilation - pad] += X[n, c, i] W[c, o, k], + B[o].

    ONNX ConvTranspose-11, 1, 2 or 3 spatial axes; `group` splits channels. Integers:
    requantize(sum (x - x_zp) (w - w_zp) + b, x_scale * w_scale[o] / y_scale).

    ONNX Runtime has no integer kernel and fuses nothing. The lowering is one QLinearConv whose
    output channels are the phases of the output, which then are put in their places by reshapes,
    transposes and, where the phases overhang, a Slice; integers are the same by construction. Float
    time over its time, in a network between two quantized 1x1 convolutions, one thread,
    AVX512-VNNI (microseconds of the whole network):

        256 -> 128, k4 s2 p1, 16x16        1667 / 407 = 4.1
        512 -> 256, k4 s2 p1, 8x8          2026 / 442 = 4.6
        256 -> 128, k2 s2, 16x16            455 / 169 = 2.7
        128 ->  64, k2 s2, 32x32            574 / 252 = 2.3
         64 ->  32, k2 s2, 32x32            200 / 124 = 1.6
        128 ->  64, k3 s2 p1 op1, 16x16     280 / 115 = 2.4
         64 ->  32, k4 s4, 16x16            189 /  96 = 2.0
         64 ->  64, k3 s1 p1, 16x16         124 /  35 = 3.5
         64 ->   3, k4 s2 p1, 32x32         148 / 154 = 0.96
         32 ->  16, k4 s2 p1, 12x12x12     2337 / 618 = 3.8
        128 ->  64, k4 s2 p1, 128            77 /  31 = 2.5
        128 -> 128, k4 s2 p1, 2 groups      611 / 216 = 2.8
         64 ->  64, k2 s2, 8 groups          46 /  57 = 0.81
         64 ->  64, k4 s2 p1, depthwise     141 /  53 = 2.7
         64 ->  64, k2 s2, depthwise         48 /  47 = 1.0

    A depthwise one reads a copy of the input per phase, so that it stays depthwise: with phases as
    outputs of each group it was 0.4. With DepthToSpace in place of transposes of whole rows of
    channels it was 1.1 to 2.1 times slower, for ONNX Runtime runs QLinearConv on (N, *spatial, C).
    """

    op_type = "ConvTranspose"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Weight per output channel of a group, which groups share; depthwise, per channel."""
        weight = filter_shape(node)
        if isinstance(weight, op.Float):
            return weight
        sizes = _spatial(node, len(weight) - 2)
        if node.attributes.get_ints("output_shape", []) and None in sizes:
            return op.Float.because(
                "its output_shape is given but the size of its input is not known; "
                "the padding follows from both"
            )
        group = node.attributes.get_int("group", 1)
        depthwise, odd = weight[:2] == (group, 1) != (1, 1), weight[0] // group % 2 == 1
        return op.Rule(
            op.OpCategory.COMPUTE,
            weight=op.WeightSlot(1, 0 if depthwise else OUTPUT_CHANNELS),
            bias=2,
            lowered=True,
            saturating_pairs=not depthwise,
            # an odd number of channels pairs taps that are neighbours in a phase, not in the weight
            pair_axes=() if depthwise or odd else (*range(2, len(weight)), 0),
            channelwise=depthwise,
        )

    def unfolded(self, node: ir.Node) -> op.Unfolded:
        """Unfolds the input to (output elements, channels * kernel elements)."""
        return unfolded_transposed(call_of(node), sizes(node, 1))

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 4, 5, 4)
        w, b = normal(4, 3, 3, 3, seed=1), normal(3, seed=2)
        up = {"strides": [2, 2]}
        yield op.Case("plain", (x, w, b), (1, 2))
        yield op.Case(
            "k4 s2 p1", (x, normal(4, 3, 4, 4, seed=1), b), (1, 2), {**up, "pads": [1] * 4}
        )
        yield op.Case("k2 s2, no bias", (x, normal(4, 3, 2, 2, seed=1)), (1,), up)
        yield op.Case(
            "k3 s2 p1, output_padding",
            (x, w, b),
            (1, 2),
            {**up, "pads": [1] * 4, "output_padding": [1, 1]},
        )
        yield op.Case(
            "asymmetric pads, strides, dilations",
            (x, normal(4, 3, 3, 2, seed=1), b),
            (1, 2),
            {"pads": [2, 0, 1, 3], "strides": [3, 2], "dilations": [1, 3]},
        )
        yield op.Case("stride beyond the kernel", (x, w, b), (1, 2), {"strides": [5, 1]})
        yield op.Case(
            "stride and dilation 2", (x, w), (1,), {**up, "dilations": [2, 2], "pads": [1] * 4}
        )
        yield op.Case("pads beyond the kernel", (x, w, b), (1, 2), {"pads": [3, 0, 3, 3], **up})
        groups = (x, normal(4, 3, 3, 3, seed=1), normal(6, seed=2))
        yield op.Case("groups", groups, (1, 2), {**up, "group": 2, "pads": [1] * 4})
        yield op.Case(
            "depthwise", (x, normal(4, 1, 4, 4, seed=1), normal(4)), (1, 2), {**up, "group": 4}
        )
        yield op.Case(
            "depthwise, unit strides", (x, normal(4, 1, 3, 3, seed=1)), (1,), {"group": 4}
        )
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield op.Case(
                mode, (x, normal(4, 3, 4, 2, seed=1)), (1,), {"auto_pad": mode, "strides": [3, 2]}
            )
        yield op.Case("output_shape", (x, w, b), (1, 2), {**up, "output_shape": [10, 8]})
        yield op.Case("larger output_shape", (x, w, b), (1, 2), {**up, "output_shape": [12, 10]})
        yield op.Case(
            "1d",
            (normal(2, 3, 9), normal(3, 4, 4, seed=1), normal(4)),
            (1, 2),
            {"strides": [3], "pads": [1, 0]},
        )
        yield op.Case(
            "3d",
            (normal(1, 2, 3, 2, 4), normal(2, 3, 2, 3, 4, seed=1), normal(3)),
            (1, 2),
            {"strides": [2, 1, 3], "pads": [0, 1, 1, 1, 0, 0]},
        )
        yield op.Case("empty batch", (normal(0, 4, 5, 4), w), (1,), up)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearConv over the phases, which are then interleaved."""
        site.check_pair()
        w_qparams, y_qparams = site.plan.inputs[1], site.qparams_out()
        assert w_qparams is not None, "check_pair looked"
        w = _integers_in(site.node, site.inputs, 1)
        group = site.node.attributes.get_int("group", 1)
        spatial = _spatial(site.node, w.ndim - 2)
        axes = [phase_axis(a) for a in transposed_axes(call_of(site.node), spatial, w.shape[2:])]
        outputs = shape_of = (group, math.prod(a.phases for a in axes), w.shape[1])
        along = _per_output(w_qparams, group)
        weight = phase_weight(w, w_qparams.zero_point.reshape(along), group, axes)
        x, order = site.inputs[0], np.arange(len(weight))
        if outputs[1] > 1 and weight.shape[1] == outputs[2] == 1 < group:
            # a copy of the input per phase: depthwise, which grouped convolutions are not
            x = site.tape.op(
                "Concat", [x] * outputs[1], {"axis": 1}, name=f"{site.node.name}_copies"
            )
            x.name = f"{site.node.name}_copies"
            order = order.reshape(outputs).swapaxes(0, 1).ravel()
            group, outputs = len(weight), (1, outputs[1], group)
        slots = [
            x,
            *site.scale_and_zero_point("x", site.qparams_in(0)),
            site.initializer("w", weight[order], w_qparams.dtype),
            *site.scale_and_zero_point("w", _for_phases(w_qparams, along, shape_of, order)),
            *site.scale_and_zero_point("y", y_qparams),
        ]
        bias = site.plan.inputs[2] if has_input(site.node, 2) else None
        if bias is not None:
            b = np.broadcast_to(
                _integers_in(site.node, site.inputs, 2).reshape(shape_of[0], 1, -1), shape_of
            )
            slots.append(site.initializer("b", b.ravel()[order], bias.dtype))
        y = site.tape.op(
            "QLinearConv",
            slots,
            {
                "pads": [a.pads[0] for a in axes] + [a.pads[1] for a in axes],
                "dilations": [a.dilation for a in axes],
                "group": group,
            },
            name=site.node.name,
        )
        return [interleaved(site.tape, site.node, y, axes, outputs, spatial, y_qparams)]

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        op = "ConvTranspose"
        x, w = call.integers(0), call.integers(1)
        group = call.integer("group", 1)
        _check_shapes(x.shape, w.shape, group, call.ints("kernel_shape", w.shape[2:]))
        x_qparams, y_qparams = call.qparams_in(0), call.qparams_out()
        per_row = call.plan.inputs[1] is not None and call.plan.inputs[1].granularity == PerChannel(
            0
        )
        depthwise = per_row and w.shape[:2] == (group, 1)
        w_qparams = call.weight_qparams(1, w, 0 if depthwise else OUTPUT_CHANNELS)
        axes = transposed_axes(call, x.shape[2:], w.shape[2:])
        total = scatter(centred(x, x_qparams), centred(w, w_qparams), group, axes)
        along = (-1, *[1] * (x.ndim - 2))
        if len(call.inputs) > 2 and call.inputs[2] is not None:
            bias = call.integers(2)
            if bias.shape != total.shape[1:2]:
                raise ShapeError(f"{op}: bias of shape {bias.shape}; wanted {total.shape[1:2]}.")
            total = total + bias.astype(np.int32).reshape(along)
        multiplier = np.asarray(x_qparams.scale * w_qparams.scale / y_qparams.scale)
        if multiplier.ndim and not depthwise:
            multiplier = np.tile(multiplier, group)
        return (requantize(total, multiplier.reshape(along), y_qparams),)

    def dynamic_rule(self, node: ir.Node) -> op.DynamicRule | op.Float:
        """A constant weight has a scale per output channel of a group; depthwise, per channel."""
        weight = shape(node, 1)
        if not is_constant(node, 1) or weight is None:
            return op.Float.because(
                "its weight is computed at run time; constant weights are needed"
            )
        return op.DynamicRule(
            (op.DynamicWeight(1, 0 if weight[OUTPUT_CHANNELS] == 1 else OUTPUT_CHANNELS),),
            STORED,
            missing="ONNX Runtime has no integer form of it without samples",
        )

    def lower_dynamic(self, site: op.DynamicSite) -> Sequence[ir.Value]:
        """ConvTranspose in float, on weights that are dequantized when a session is made."""
        return lower_stored(site, self.dynamic_rule(site.node))


def _spatial(node: ir.Node, rank: int) -> list[int | None]:
    """Spatial sizes of the input, None for those not known."""
    x = shape(node, 0)
    return [None] * rank if x is None else list(x[2:])


def _integers_in(node: ir.Node, inputs: Sequence[ir.Value | None], slot: int) -> IntArray:
    value = inputs[slot]
    if value is None or value.const_value is None:
        raise UnsupportedError(
            f"ConvTranspose '{node.name}': input {slot} is computed at run time; its integer form "
            "rearranges a constant. Leave it float in the qconfig, or fold constants first."
        )
    return np.asarray(value.const_value.numpy())


def _per_output(w: QParams, group: int) -> tuple[int, ...]:
    """Shape in which the weight's scales broadcast to (group, phases, outputs / group)."""
    if isinstance(w.granularity, PerTensor):
        return ()
    return (group, 1, 1) if w.granularity == PerChannel(0) else (1, 1, -1)


def _for_phases(
    w: QParams, along: tuple[int, ...], outputs: tuple[int, ...], order: npt.NDArray[np.intp]
) -> QParams:
    """The weight's qparams for each output channel of the convolution, taken in that order."""
    if not along:
        return w
    scale = np.broadcast_to(w.scale.reshape(along), outputs).ravel()[order]
    zero_point = np.broadcast_to(w.zero_point.reshape(along), outputs).ravel()[order]
    return QParams(scale, zero_point, w.dtype, PerChannel(0))


def _check_shapes(
    x: tuple[int, ...], w: tuple[int, ...], group: int, kernel_shape: Sequence[int]
) -> None:
    """Raises ShapeError where x (N, C, *S) and w (C, O / group, *K) do not fit together."""
    if len(x) != len(w) or len(x) - 2 not in SPATIAL_RANKS:
        raise ShapeError(f"ConvTranspose: x {x} and w {w}; wanted the same rank, 3 to 5.")
    if group < 1 or w[0] % group or w[0] != x[1]:
        raise ShapeError(
            f"ConvTranspose: x {x}, w {w}, group {group}; wanted {x[1]} = {w[0]} channels, "
            "a multiple of group."
        )
    if tuple(kernel_shape) != w[2:]:
        raise ShapeError(f"ConvTranspose: kernel_shape {list(kernel_shape)}, but w is {w}.")
