"""Geometry of transposed convolutions, and their rearrangement as convolutions.

Y[t] += X[i] W[k] at t = i * stride + k * dilation - begin, per spatial axis. Outputs that lie
`stride` apart see the same taps, so that with t + shift = q * stride + r each of the `stride`
phases r is a plain convolution over q:

    Z[q, r] = sum_j X[q - j] W[k],  k * dilation - begin + shift = j * stride + r

and Y is Z[q, r] read in the order q * stride + r, cut to its size. Phases without a tap at some j
have the zero point there, which adds nothing. `interleaved` writes the reading in that order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq.operator import Ints, NodeCall, Singles
from onnxq.operators._gemm import integer_matmul
from onnxq.operators._windows import check_positive
from onnxq.qparams import IntArray, QParams

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True, slots=True)
class TransposedAxis:
    """One spatial axis of a transposed convolution.

    Attributes:
        stride: between the places of neighbouring inputs.
        dilation: between the places of neighbouring taps.
        begin: how much is cut off in front.
        growth: the output has stride * size + growth elements.
    """

    taps: int
    stride: int
    dilation: int
    begin: int
    growth: int

    def out(self, size: int) -> int:
        """Elements of the output for an input of that size."""
        return self.stride * size + self.growth


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """The same axis as a convolution with one output channel per phase.

    Attributes:
        place: per tap, (phase, index in the kernel of that phase).
        pads: of the convolution, in front and behind.
        windows: the convolution has size + windows places.
        crop: elements to cut off in front and behind, once the phases are interleaved.
    """

    phases: int
    place: tuple[tuple[int, int], ...]
    taps: int
    dilation: int
    pads: tuple[int, int]
    windows: int
    crop: tuple[int, int]


def transposed_axes(
    call: NodeCall, spatial: Sequence[int | None], kernel: Sequence[int]
) -> list[TransposedAxis]:
    """The axes of an input with those spatial sizes; ONNX ConvTranspose-11.

    out = stride * (size - 1) + output_padding + dilation * (kernel - 1) + 1 - pads. Where
    `output_shape` or auto_pad gives the output's size, the padding follows from it; SAME_UPPER cuts
    more behind, everything else (as ONNX Runtime does) in front.

    Args:
        call: with strides, dilations, pads, auto_pad, output_padding and output_shape.
        spatial: sizes; None for those not known, which only `output_shape` needs.
        kernel: taps per axis.
    """
    rank = len(spatial)
    strides = call.ints("strides", [1] * rank)
    dilations = call.ints("dilations", [1] * rank)
    pads = call.ints("pads", [0] * 2 * rank)
    extra = call.ints("output_padding", [0] * rank)
    shape = call.ints("output_shape", [])[-rank:]
    mode = call.text("auto_pad", "NOTSET")
    lengths = {len(kernel), len(strides), len(dilations), len(extra), len(shape or kernel)}
    if lengths != {rank} or len(pads) != 2 * rank or mode not in AUTO_PADS:
        raise call.shape_error(
            f"{rank} spatial axes; got kernel {list(kernel)}, strides {strides}, "
            f"dilations {dilations}, pads {pads}, output_padding {extra}, output_shape {shape}, "
            f"auto_pad {mode}."
        )
    check_positive(call, kernel=kernel, strides=strides, dilations=dilations)
    axes = []
    for i, size in enumerate(spatial):
        stride = strides[i]
        full = extra[i] + dilations[i] * (kernel[i] - 1) + 1 - stride  # beyond stride * size
        begin, end = (pads[i], pads[rank + i]) if mode == "NOTSET" else (0, 0)
        growth = full - begin - end
        if shape:
            if size is None:
                raise call.shape_error(f"output_shape {shape} needs a known input size.")
            growth = shape[i] - stride * size
            begin = _in_front(mode, full - growth)
        elif mode.startswith("SAME"):
            growth = min(full, 0)
            begin = _in_front(mode, full)
        if size is not None and stride * size + growth < 0:
            raise call.shape_error(f"the output would have {stride * size + growth} elements.")
        axes.append(TransposedAxis(kernel[i], stride, dilations[i], begin, growth))
    return axes


def _in_front(mode: str, total: int) -> int:
    """Elements that are cut off in front, of what the output's size wants cut off in all."""
    total = max(total, 0)
    return total // 2 if mode == "SAME_UPPER" else total - total // 2


def phase_axis(axis: TransposedAxis) -> PhaseAxis:
    """The axis as a convolution over phases."""
    offsets = [k * axis.dilation - axis.begin for k in range(axis.taps)]

    def span(shift: int) -> tuple[int, int]:
        return (offsets[0] + shift) // axis.stride, (offsets[-1] + shift) // axis.stride

    shift = min(range(axis.stride), key=lambda s: (span(s)[1] - span(s)[0], s))
    shift += max(0, -span(shift)[1]) * axis.stride  # a convolution has no negative pads
    low, high = span(shift)
    single = axis.stride == 1
    if single:  # the taps stay where they are
        place = tuple((0, axis.taps - 1 - k) for k in range(axis.taps))
    else:
        place = tuple(
            (t % axis.stride, high - t // axis.stride) for t in (r + shift for r in offsets)
        )
    windows = max(math.ceil((axis.growth + shift) / axis.stride), low)
    return PhaseAxis(
        axis.stride,
        place,
        axis.taps if single else high - low + 1,
        axis.dilation if single else 1,
        (high, windows - low),
        windows,
        (shift, axis.stride * windows - shift - axis.growth),
    )


def phase_weight(
    w: IntArray, zero_point: IntArray, group: int, axes: Sequence[PhaseAxis]
) -> IntArray:
    """The convolution's weight: channels (group, phase of the last axis ... first, output).

    Args:
        w: (channels, outputs / group, *kernel).
        zero_point: stands where a phase has no tap; broadcasts to (group, phases, outputs / group).
        group: of the transposed convolution.
        axes: of its kernel.
    Returns:
        (group * phases * outputs / group, channels / group, *taps), w's dtype.
    """
    channels, outputs = w.shape[0] // group, w.shape[1]
    phases = [axis.phases for axis in reversed(axes)]
    taps = [axis.taps for axis in axes]
    shape = (group, math.prod(phases), outputs)
    source = w.reshape(group, channels, outputs, *w.shape[2:]).swapaxes(1, 2)
    result = np.broadcast_to(zero_point, shape).astype(w.dtype)
    result = np.tile(result[(..., *[None] * (1 + len(taps)))], (channels, *taps))
    result = result.reshape(group, *phases, outputs, channels, *taps)
    for index in np.ndindex(*w.shape[2:]):
        places = [axis.place[k] for axis, k in zip(axes, index, strict=True)]
        phase, tap = [p for p, _ in reversed(places)], [t for _, t in places]
        result[(slice(None), *phase, slice(None), slice(None), *tap)] = source[(..., *index)]
    return result.reshape(-1, channels, *taps)


def scatter(x: Singles, w: Singles, group: int, axes: Sequence[TransposedAxis]) -> Ints:
    """The transposed convolution of whole numbers, exact modulo 2^32.

    Args:
        x: float32 (batch, channels, *spatial), zero points subtracted.
        w: float32 (channels, outputs / group, *kernel), likewise.
        group: channels and outputs are split into this many groups.
        axes: of x.
    Returns:
        int32 (batch, outputs, *out).
    """
    batch, spatial, kernel = x.shape[0], x.shape[2:], w.shape[2:]
    rows = w.reshape(group, w.shape[0] // group, -1).swapaxes(1, 2)
    columns = x.reshape(batch, group, rows.shape[2], math.prod(spatial))
    product = integer_matmul(rows, columns).reshape(batch, group * w.shape[1], *kernel, *spatial)
    out = [axis.out(size) for axis, size in zip(axes, spatial, strict=True)]
    sizes = [
        (size - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1
        for axis, size in zip(axes, spatial, strict=True)
    ]
    canvas = [max(r, axis.begin + n) for r, axis, n in zip(sizes, axes, out, strict=True)]
    total = np.zeros((*product.shape[:2], *canvas), np.int32)
    for index in np.ndindex(*kernel) if x.size else ():
        places = tuple(
            slice(k * a.dilation, k * a.dilation + (size - 1) * a.stride + 1, a.stride)
            for k, a, size in zip(index, axes, spatial, strict=True)
        )
        total[:, :, *places] += product[:, :, *index]
    cut = (slice(a.begin, a.begin + n) for a, n in zip(axes, out, strict=True))
    return total[:, :, *cut]


END = np.iinfo(np.int64).max  # Slice: up to the end


class _Writer:
    """Writes nodes named after the float node; each step takes the result of the one before."""

    def __init__(self, tape: Tape, node: ir.Node, value: ir.Value) -> None:
        self.tape, self.node, self.value = tape, node, value
        self.value.name = f"{node.name}_phases"
        self.steps = 0

    def step(
        self,
        op_type: str,
        constants: Sequence[Sequence[int]] = (),
        attributes: dict[str, Sequence[int]] | None = None,
    ) -> None:
        self.steps += 1
        name = f"{self.node.name}_interleave_{self.steps}"
        inputs = [
            self.tape.initializer(ir.tensor(np.array(c, np.int64)), name=f"{name}_{i}")
            for i, c in enumerate(constants)
        ]
        self.value = self.tape.op(op_type, [self.value, *inputs], attributes or {}, name=name)
        self.value.name = name

    def transpose(self, order: Sequence[int]) -> None:
        if list(order) != sorted(order):
            self.step("Transpose", (), {"perm": list(order)})

    def reshape(self, shape: Sequence[int]) -> None:
        self.step("Reshape", [shape])


def interleaved(
    tape: Tape,
    node: ir.Node,
    phases: ir.Value,
    axes: Sequence[PhaseAxis],
    outputs: tuple[int, ...],
    spatial: Sequence[int | None],
    y: QParams,
) -> ir.Value:
    """The output (N, O, *out) from (N, group * phases * outputs / group, *places).

    Channels go last; then, axis by axis from the last one, the axis moves beside the channels and
    takes its phases from them: a mere Reshape. So every transpose moves whole rows of channels, the
    first and the last cancel against those that ONNX Runtime puts around QLinearConv, and unknown
    sizes stay unknown (0 in a Reshape keeps a size).

    Args:
        tape: records the new nodes.
        node: the float node.
        phases: the convolution's result.
        axes: with their phases.
        outputs: (group, phases, outputs / group).
        spatial: sizes of the convolution's input, None where not known.
        y: qparams of the output.
    """
    writer, rank = _Writer(tape, node, phases), len(axes)
    unfolded = [i for i in reversed(range(rank)) if axes[i].phases > 1]
    group, count, each = outputs
    order = list(range(rank))
    if unfolded:
        writer.transpose([0, *range(2, rank + 2), 1])
    if unfolded and group > 1:
        keep = [0] * (1 + rank)
        writer.reshape([*keep, group, count, each])
        writer.transpose([*range(rank + 1), rank + 2, rank + 1, rank + 3])
        writer.reshape([*keep, count * group * each])
    channels = count * group * each
    for i in unfolded:
        channels //= axes[i].phases
        place = order.index(i)
        order.append(order.pop(place))
        others = [p for p in range(rank) if p != place]
        writer.transpose([0, *(p + 1 for p in others), place + 1, rank + 1])
        size = spatial[i]
        length = -1 if size is None else (size + axes[i].windows) * axes[i].phases
        writer.reshape([*[0] * rank, length, channels])
    first = 1 if unfolded else 2
    _crop(writer, [axes[i] for i in order], first)
    if unfolded:
        writer.transpose([0, rank + 1, *(1 + order.index(i) for i in range(rank))])
    value = writer.value
    value.type, value.shape = ir.TensorType(ir.DataType[y.dtype.onnx]), node.outputs[0].shape
    return value


def _crop(writer: _Writer, axes: Sequence[PhaseAxis], first: int) -> None:
    """Cuts off what the phases overhang; `axes` as they lie from axis `first` on."""
    cut = [i for i, axis in enumerate(axes) if any(axis.crop)]
    if not cut:
        return
    begins = [axes[i].crop[0] for i in cut]
    ends = [-axes[i].crop[1] or END for i in cut]
    writer.step("Slice", [begins, ends, [first + i for i in cut]])
