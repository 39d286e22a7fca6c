"""Images in another size, with the input's qparams."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.functional.calls import call, check_input, check_rank, per_axis, real
from onnxq.operator import AttributeValue
from onnxq.qtensor import QTensor

Factor = float | Sequence[float] | None
Size = int | Sequence[int] | None


RANKS = {"nearest": (4, 5), "bilinear": (4,)}
AXES = {"nearest": "(N, C, H, W) or (N, C, D, H, W)", "bilinear": "(N, C, H, W)"}


def interpolate(
    input: QTensor,
    size: Size = None,
    scale_factor: Factor = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> QTensor:
    """The input in another size; ONNX Resize.

    nearest   y[i] = x[floor(i / scale)]
    bilinear  weights the four elements around (i + 1/2) / scale - 1/2, or with align_corners
              around i (in - 1) / (out - 1), in float32, and rounds

    Args:
        input: (N, C, H, W), for "nearest" (N, C, D, H, W) too.
        size: of the result, one number or one per spatial axis.
        scale_factor: in its place: out = floor(in * scale_factor).
        mode: "nearest" or "bilinear".
        align_corners: for "bilinear", whether the corners' centres stay; None: they do not.
    Raises:
        ShapeError: input is no QTensor or has another rank; not one of size and scale_factor;
            an empty result; align_corners with "nearest".
        UnsupportedError: quantized per channel, or another mode.
    """
    op = "interpolate"
    x = check_input(op, input)
    if mode not in RANKS:
        raise UnsupportedError(
            f"{op}: mode is '{mode}'; quantized tensors have nearest and bilinear. "
            "Call it on dequantize()."
        )
    check_rank(op, x, RANKS[mode], AXES[mode])
    if mode == "nearest" and align_corners is not None:
        raise ShapeError(f"{op}: align_corners is for bilinear; leave it None for nearest.")
    scales, sizes = _target(op, x.shape, size, scale_factor, x.ndim - 2)
    return call("Resize", [x, None, scales, sizes], x.qparams, _attributes(mode, align_corners))


def upsample(
    input: QTensor,
    size: Size = None,
    scale_factor: Factor = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> QTensor:
    """`interpolate` under its older name; arguments and errors are the same."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: QTensor, size: Size = None, scale_factor: Factor = None) -> QTensor:
    """`interpolate` with mode "bilinear" and align_corners. Raises as it."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def upsample_nearest(input: QTensor, size: Size = None, scale_factor: Factor = None) -> QTensor:
    """`interpolate` with mode "nearest". Raises as it."""
    return interpolate(input, size, scale_factor, "nearest")


def _attributes(mode: str, align_corners: bool | None) -> dict[str, AttributeValue]:
    if mode == "nearest":
        return {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        }
    corners = "align_corners" if align_corners else "half_pixel"
    return {"mode": "linear", "coordinate_transformation_mode": corners}


def _target(
    op: str, shape: tuple[int, ...], size: Size, factor: Factor, rank: int
) -> tuple[npt.NDArray[np.float32] | None, npt.NDArray[np.int64] | None]:
    """ONNX's scales or sizes, of which one is None."""
    if (size is None) == (factor is None):
        raise ShapeError(f"{op}: size {size}, scale_factor {factor}; wanted one of the two.")
    if size is not None:
        sizes = per_axis(op, "size", size, rank)
        if min(sizes) < 1:
            raise ShapeError(f"{op}: size is {size}; wanted 1 or more.")
        return None, np.array([*shape[:2], *sizes], np.int64)
    given = factor if isinstance(factor, Iterable) else [factor] * rank
    factors = [real(op, "scale_factor", f) for f in given]
    if len(factors) != rank:
        raise ShapeError(f"{op}: scale_factor is {factor}; wanted one number, or {rank}.")
    if any(not np.isfinite(f) or n * f < 1 for n, f in zip(shape[2:], factors, strict=True)):
        raise ShapeError(
            f"{op}: scale_factor {factor} of {shape} leaves nothing; wanted larger factors."
        )
    scales = [_scale(n, f) for n, f in zip(shape[2:], factors, strict=True)]
    return np.array([1, 1, *scales], np.float32), None


def _scale(size: int, factor: float) -> np.float32:
    """The float32 next to factor whose size in ONNX, floor(size * scale) in float32, is PyTorch's.

    PyTorch multiplies in double: 10 by 0.7999999999999999 is 7 there, and 8 in float32.
    """
    wanted, scale = math.floor(size * factor), np.float32(factor)
    while math.floor(np.float32(size) * scale) > wanted:
        scale = np.nextafter(scale, np.float32(0))
    while math.floor(np.float32(size) * scale) < wanted:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale
