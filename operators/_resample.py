"""Geometry of Resize: output sizes, and which place of the input each output element looks at.

All of it in float32, operation by operation as ONNX Runtime has it: an element more or less, or
the neighbour of a tie, would be another tensor.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array, NodeCall

Coordinates = npt.NDArray[np.float32]
Places = npt.NDArray[np.intp]

CROP = "tf_crop_and_resize"
HALF = np.float32(0.5)
TIE = 1e-6  # distance from the middle
OPSET_10 = "opset 10"
"""Rounding before there was a nearest_mode, in ONNX Runtime: up where an axis shrinks."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a Resize.

    Attributes:
        scale: of the coordinates; about out / size.
    """

    size: int
    out: int
    scale: np.float32


def resized_axes(
    call: NodeCall, shape: Sequence[int], scales: Array | None, sizes: Array | None
) -> list[Axis]:
    """Every axis of the tensor; out = floor(size * scale), or as `sizes` says.

    Args:
        call: with `axes` and, for sizes, `keep_aspect_ratio_policy`.
        shape: of the input.
        scales: float32, one per entry of the attribute `axes`, or per axis; None or empty: sizes.
        sizes: int64, likewise.
    """
    rank = len(shape)
    axes = call.ints("axes", range(rank))
    along = [axis % rank if -rank <= axis < rank else rank for axis in axes]
    given = [x for x in (scales, sizes) if x is not None and x.size]
    if len(given) != 1 or given[0].shape != (len(along),) or rank in along:
        found = [None if x is None else x.shape for x in (scales, sizes)]
        raise ShapeError(
            f"Resize: x {tuple(shape)}, axes {along}, scales and sizes of shapes {found}; wanted "
            "one of the two, with one entry per axis."
        )
    if given[0] is sizes:
        return _by_sizes(call, shape, dict(zip(along, map(int, given[0]), strict=True)))
    found_scales = dict(zip(along, given[0].astype(np.float32), strict=True))
    if not all(scale > 0 for scale in found_scales.values()):  # NaN fails too
        raise ShapeError(f"Resize: scales {given[0].tolist()}; they must be positive.")
    all_scales = [found_scales.get(axis, np.float32(1)) for axis in range(rank)]
    return [Axis(n, int(s * np.float32(n)), s) for n, s in zip(shape, all_scales, strict=True)]


def _by_sizes(call: NodeCall, shape: Sequence[int], sizes: dict[int, int]) -> list[Axis]:
    """Axes whose sizes are given; a policy gives all of them one scale."""
    axes = [Axis(n, sizes.get(i, n), _ratio(sizes.get(i, n), n)) for i, n in enumerate(shape)]
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return axes
    if policy not in ("not_larger", "not_smaller"):
        raise ShapeError(
            f"Resize: keep_aspect_ratio_policy is '{policy}'; ONNX knows stretch, not_larger and "
            "not_smaller."
        )
    choose = min if policy == "not_larger" else max
    scale = choose(axes[i].scale for i in sizes)
    return [
        Axis(axis.size, math.floor(scale * np.float32(axis.size) + HALF), scale)
        if i in sizes
        else axis
        for i, axis in enumerate(axes)
    ]


def _ratio(out: int, size: int) -> np.float32:
    if size == 0 and out:
        raise ShapeError(f"Resize: an axis of size 0 cannot become {out}.")
    return np.float32(1) if size == 0 else np.float32(out) / np.float32(size)


def coordinates(call: NodeCall, axis: Axis) -> Coordinates:
    """Where in the input each output element lies, unclipped; shape (axis.out,)."""
    x = np.arange(axis.out, dtype=np.float32)
    mode = call.text("coordinate_transformation_mode", "half_pixel")
    if mode == CROP:
        raise UnsupportedError(
            f"Resize: {CROP} puts in a value of its own outside the image; leave it float."
        )
    if mode not in TRANSFORMATIONS:
        raise ShapeError(
            f"Resize: coordinate_transformation_mode is '{mode}'; ONNX knows "
            f"{', '.join(TRANSFORMATIONS)}, {CROP}."
        )
    return TRANSFORMATIONS[mode](x, axis)


def _half_pixel(x: Coordinates, axis: Axis) -> Coordinates:
    return np.asarray((x + HALF) / axis.scale - HALF)


def _half_pixel_symmetric(x: Coordinates, axis: Axis) -> Coordinates:
    size = np.float32(axis.size)
    adjustment = np.float32(axis.out) / (axis.scale * size)
    offset = size / np.float32(2) * (np.float32(1) - adjustment)
    place = np.float64(offset) + (x.astype(np.float64) + 0.5) / np.float64(axis.scale) - 0.5
    return np.asarray(place, np.float32)


def _align_corners(x: Coordinates, axis: Axis) -> Coordinates:
    if axis.out == 1:
        return np.zeros_like(x)
    return np.asarray(x * np.float32(axis.size - 1) / np.float32(axis.out - 1))


TRANSFORMATIONS: dict[str, Callable[[Coordinates, Axis], Coordinates]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": lambda x, axis: (
        _half_pixel(x, axis) if axis.out > 1 else np.zeros_like(x)
    ),
    "align_corners": _align_corners,
    "asymmetric": lambda x, axis: np.asarray(x / axis.scale),
    "tf_half_pixel_for_nn": lambda x, axis: np.asarray((x + HALF) / axis.scale),
}


def nearest(call: NodeCall, axis: Axis) -> Places:
    """The input element that each output element copies; shape (axis.out,)."""
    if axis.scale == 1:
        return np.arange(axis.out, dtype=np.intp)
    place = coordinates(call, axis).astype(np.float64)
    mode = call.text("nearest_mode", "round_prefer_floor")
    if mode == OPSET_10:
        mode = "ceil" if axis.scale < 1 else "floor"
    if mode not in ROUNDINGS:
        raise ShapeError(f"Resize: nearest_mode is '{mode}'; ONNX knows {', '.join(ROUNDINGS)}.")
    return np.clip(ROUNDINGS[mode](place).astype(np.intp), 0, axis.size - 1)


Rounding = npt.NDArray[np.float64]


def _tie(x: Rounding) -> npt.NDArray[np.bool_]:
    """Where x lies in the middle but for noise of float32, as ONNX Runtime 1.31 sees it."""
    return np.asarray(np.abs(x - np.floor(x) - 0.5) <= TIE)


ROUNDINGS: dict[str, Callable[[Rounding], Rounding]] = {
    "round_prefer_floor": lambda x: np.where(_tie(x), np.floor(x), np.floor(x + 0.5)),
    "round_prefer_ceil": lambda x: np.where(_tie(x), np.ceil(x), np.floor(x + 0.5)),
    "floor": lambda x: np.asarray(np.floor(x)),
    "ceil": lambda x: np.asarray(np.ceil(x)),
}
