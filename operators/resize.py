"""Another resolution."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq import operator as op
from onnxq.affine import dequantize, quantize
from onnxq.errors import UnsupportedError
from onnxq.operator.examples import ints, normal
from onnxq.operators import _interpolate
from onnxq.operators._function import lower_around
from onnxq.operators._resample import CROP, Axis, Places, nearest, resized_axes
from onnxq.qparams import IntArray

MODES = ("nearest", "linear", "cubic")
IMAGE_RANK = 4  # (batch, channels, height, width), or the channels last

PLACE_BITS = 10
FILTER_BITS = 22

IntTap = tuple["Places", npt.NDArray[np.int32]]


@op.register
class Resize(op.Operator):
    """Y[p] = X at the place of p: its nearest element, or an interpolation; ONNX Resize-19.

    Nearest elements are integers copied, in any of ONNX's coordinate and rounding modes.

    Linear and cubic interpolation have no integer kernel that rounds: ONNX Runtime's own, on plain
    integers, truncates (half an LSB too low on the average). They are computed in float32 between
    integers. The result has qparams of its own: averages span less than what they are averages of,
    and cubic interpolation overshoots.
    """

    op_type = "Resize"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Nearest copies integers; interpolation computes."""
        if node.attributes.get_string("coordinate_transformation_mode", "") == CROP:
            return op.Float.because(f"{CROP} puts in a value of its own outside the image")
        mode = node.attributes.get_string("mode", "nearest")
        if mode == "nearest" or _holds_integers(node):
            return op.Rule(op.OpCategory.MOVEMENT, shares_qparams=True)
        return op.Rule(op.OpCategory.ELEMENTWISE, precision=op.Precision.FLOAT_BETWEEN_QDQ)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 4, 5)
        scales = np.array([1, 1, 2, 1.5], np.float32)
        yield op.Case("scales", (x, None, scales), (2,))
        yield op.Case("sizes", (x, None, None, ints(2, 3, 6, 4)), (3,))
        asymmetric = {"coordinate_transformation_mode": "asymmetric"}
        yield op.Case(
            "asymmetric, floor", (x, None, scales), (2,), {**asymmetric, "nearest_mode": "floor"}
        )
        yield op.Case(
            "axes, the larger scale",
            (x, None, None, ints(6, 9)),
            (3,),
            {"axes": [2, 3], "keep_aspect_ratio_policy": "not_smaller"},
        )
        yield op.Case("empty batch", (x[:0], None, scales), (2,))
        for mode in ("linear", "cubic"):
            yield op.Case(mode, (x, None, scales), (2,), {"mode": mode})
            corners = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
            yield op.Case(f"{mode}, sizes", (x, None, None, ints(2, 3, 7, 2)), (3,), corners)
            yield op.Case(
                f"{mode}, antialias",
                (x, None, np.array([1, 1, 0.6, 0.4], np.float32)),
                (2,),
                {"mode": mode, "antialias": 1},
            )
            last = np.array([1, 1.5, 2, 1], np.float32)
            yield op.Case(
                f"{mode}, channels last", (x, None, last), (2,), {"mode": mode, **asymmetric}
            )
        yield op.Case(
            "linear, 3d", (normal(1, 2, 3, 4, 3), None, scales[[0, 0, 2, 3, 2]]), (2,), LINEAR
        )
        yield op.Case(
            "cubic, exclude_outside",
            (x, None, scales),
            (2,),
            {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5},
        )
        yield op.Case("linear, empty batch", (x[:0], None, scales), (2,), LINEAR)

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """Resize on integers, or around the float operator."""
        if site.node.attributes.get_string("mode", "nearest") == "nearest":
            return site.on_integers()
        return lower_around(site)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        x = call.integers(0)
        axes = _axes(call, x)
        if _mode(call) == "nearest":
            call.shared()
            return (_nearest(call, x, axes),)
        p, q = call.qparams_in(0), call.qparams_out()
        y = np.empty([axis.out for axis in axes], q.dtype.storage)
        if y.size == 0:
            return (y,)
        if _is_copy(x, axes):
            return (quantize(dequantize(x, p), q),)
        images = len(x) if x.ndim >= IMAGE_RANK else 1  # one by one, to stay near a cache
        for part in np.array_split(np.arange(len(x)), images):
            reals = _interpolated(call, dequantize(x[part], p), axes)
            y[part if x.ndim >= IMAGE_RANK else ...] = quantize(reals, q)
        return (y,)

    def plain_kernel(self, call: op.NodeCall) -> tuple[op.Array, ...]:
        """Integers of Y where X is integers in the user's own model."""
        given = call.inputs[0]
        if given is None or given.dtype not in (np.uint8, np.int8):
            got = "nothing" if given is None else str(given.dtype)
            raise UnsupportedError(
                f"{call.op_type}: X is {got}; the kernel on integers is for 8 bits."
            )
        if call.text("coordinate_transformation_mode", "") == CROP:
            raise UnsupportedError(
                f"{call.op_type}: {CROP} puts in a value of its own outside the image. Dequantize "
                "first."
            )
        x = np.asarray(given, given.dtype.name)
        axes, mode = _axes(call, x), _mode(call)
        if mode == "nearest":
            return (_nearest(call, x, axes),)
        if _is_copy(x, axes) or x.size == 0:
            return (x.reshape([axis.out for axis in axes]).copy(),)
        between = _interpolated_axes(axes)
        if call.integer("antialias", 0) or (mode == "cubic" and _is_channels_last(x, between)):
            return (antialiased_integers(call, x, between, mode),)
        if mode == "cubic":
            raise UnsupportedError(
                "Resize, mode cubic: ONNX Runtime fails at run time on integers. Dequantize "
                "before it."
            )
        return (linear_integers(call, x, between),)


LINEAR: dict[str, op.AttributeValue] = {"mode": "linear"}


def _holds_integers(node: ir.Node) -> bool:
    """Whether the node of a user's model is on integers already: then ONNX Runtime runs it so."""
    value = node.inputs[0]
    return value is not None and value.dtype is not None and value.dtype.is_integer()


def _mode(call: op.NodeCall) -> str:
    """Raises ShapeError where ONNX does not know the mode."""
    mode = call.text("mode", "nearest")
    if mode not in MODES:
        raise call.shape_error(f"mode is '{mode}'; ONNX knows {', '.join(MODES)}.")
    return mode


def _axes(call: op.NodeCall, x: IntArray) -> list[Axis]:
    scales, sizes = ([*call.inputs, None, None, None][slot] for slot in (2, 3))
    return resized_axes(call, x.shape, scales, sizes)


def _is_copy(x: IntArray, axes: Sequence[Axis]) -> bool:
    """ONNX Runtime copies where no size changes, whatever scales and mode say."""
    return tuple(axis.out for axis in axes) == x.shape


def _nearest(call: op.NodeCall, x: IntArray, axes: Sequence[Axis]) -> IntArray:
    if _is_copy(x, axes):
        return x.copy()
    if 0 in (axis.out for axis in axes):
        return np.empty([axis.out for axis in axes], x.dtype)
    for i, axis in enumerate(axes):
        if axis.out != axis.size or axis.scale != 1:
            x = np.take(x, nearest(call, axis), i)
    return x


def _interpolated_axes(axes: Sequence[Axis]) -> dict[int, Axis]:
    """Axes that ONNX Runtime interpolates along: all, or of rank 4 and 5 the spatial ones."""
    rank = len(axes)
    spatial = range(rank) if rank < IMAGE_RANK else range(2, rank)
    if rank == IMAGE_RANK and axes[1].scale != 1:
        spatial = range(1, 3)
    if rank not in (2, 3, 4, 5) or any(axes[i].scale != 1 for i in range(rank) if i not in spatial):
        raise UnsupportedError(
            f"Resize of rank {rank} by {[float(axis.scale) for axis in axes]}: ONNX Runtime "
            "interpolates along the spatial axes of images and volumes only."
        )
    return {i: axes[i] for i in spatial}


def _is_channels_last(x: IntArray | op.Singles, between: Mapping[int, Axis]) -> bool:
    """Whether an image is interpolated along axes before its last."""
    return x.ndim == IMAGE_RANK and x.ndim - 1 not in between


def _interpolated(call: op.NodeCall, x: op.Singles, axes: Sequence[Axis]) -> op.Singles:
    """ONNX Runtime's interpolation in float32, bit for bit."""
    between, mode = _interpolated_axes(axes), _mode(call)
    if call.integer("antialias", 0) or (mode == "cubic" and _is_channels_last(x, between)):
        # without shrinking, the filter of antialiasing is the plain cubic one
        return _interpolate.antialiased(call, x, between, mode)
    if mode == "linear":
        return _interpolate.blend(
            x, {i: _interpolate.linear_taps(call, axis) for i, axis in between.items()}
        )
    return _interpolate.cubic(call, x, between)


# --- uint8 and int8 integers as they are. ONNX Runtime truncates toward 0 where the float operator
# would round, and counts in steps of 1 / 1024 where the channels are last; its antialiasing
# filter counts in steps of 2^-22.


def linear_integers(call: op.NodeCall, x: IntArray, axes: dict[int, Axis]) -> IntArray:
    """Integers between integers; axes: those that are interpolated."""
    if _is_channels_last(x, axes):
        return _blend_integers(x, {i: _integer_taps(call, a) for i, a in axes.items()})
    taps = {i: _interpolate.linear_taps(call, a) for i, a in axes.items()}
    return np.asarray(_interpolate.blend(x.astype(np.float32), taps)).astype(x.dtype)  # truncates


def _integer_taps(call: op.NodeCall, axis: Axis) -> tuple[IntTap, IntTap]:
    """`linear_taps` with weights that are multiples of 1 / 1024, as integers."""
    one = 1 << PLACE_BITS
    place, before, behind = _interpolate.neighbours(call, axis)
    fine = (place * np.float32(one)).astype(np.int32)
    near, far = (np.abs(fine - i.astype(np.int32) * one) for i in (before, behind))
    same = before == behind
    near[same] = far[same] = one // 2
    return (before, far), (behind, near)


def _blend_integers(x: IntArray, taps: dict[int, tuple[IntTap, IntTap]]) -> IntArray:
    total: npt.NDArray[np.int32] | None = None
    for corner in itertools.product((0, 1), repeat=len(taps)):
        part, weight = x, np.ones((), np.int32)
        for axis, side in zip(taps, corner, strict=True):
            places, weights = taps[axis][side]
            part = np.take(part, places, axis)
            weight = weight * _interpolate.along(weights, axis, x.ndim)
        term = part.astype(np.int32) * weight
        total = term if total is None else np.add(total, term, out=total)
    assert total is not None, "there is a corner"
    magnitude = np.abs(total) >> (PLACE_BITS * len(taps))
    return np.asarray(np.copysign(magnitude, total)).astype(x.dtype)


def antialiased_integers(
    call: op.NodeCall, x: IntArray, axes: dict[int, Axis], mode: str
) -> IntArray:
    """Weighted sums of integers along each axis whose size changes, the last axis first."""
    if x.dtype != np.uint8:
        raise UnsupportedError(
            f"Resize with antialias on {x.dtype} integers: ONNX Runtime clips them to [0, 255], as "
            "if they were uint8. Dequantize before it."
        )
    for axis in sorted(axes, reverse=True):
        if axes[axis].size == axes[axis].out:
            continue
        first, weights = _interpolate.filter_weights(call, axes[axis], mode)
        scaled = weights.astype(np.float64) * (1 << FILTER_BITS)
        counts = np.copysign(np.floor(np.abs(scaled) + 0.5), scaled).astype(np.int32)
        shape = (*x.shape[:axis], axes[axis].out, *x.shape[axis + 1 :])
        total = np.full(shape, 1 << (FILTER_BITS - 1), np.int32)
        for tap in range(counts.shape[1]):
            index = np.minimum(first + tap, axes[axis].size - 1)
            part = np.take(x, index, axis).astype(np.int32)
            total += part * _interpolate.along(counts[:, tap], axis, x.ndim)
        x = np.clip(total >> FILTER_BITS, 0, 255).astype(np.uint8)
    return x
