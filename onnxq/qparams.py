"""The numeric core: quantization parameters, and the only functions that round.

    quantize    q = saturate(rint(x / scale) + zero_point)       ONNX QuantizeLinear
    dequantize  x = (q - zero_point) * scale                     ONNX DequantizeLinear
    requantize  q = saturate(rint(acc * multiplier) + zero_point)

rint rounds halves to even, in float32, before the zero point is added, as ONNX Runtime does; the ONNX
text says "to nearest even" of x / scale. int32 is the exception: no runtime quantizes to it, so it is
computed in float64 and saturates.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.dtypes import INT32, QDType
from onnxq.errors import ShapeError

FloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.integer]

MIN_SCALE = np.float32(2**-126)  # smallest normal float32: an all-zero tensor must not give scale 0


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for the tensor: scale.shape == ()."""


@dataclass(frozen=True, slots=True)
class PerChannel:
    """scale has shape (channels,); channels = x.shape[axis]."""

    axis: int


@dataclass(frozen=True, slots=True)
class PerBlock:
    """scale has x's shape, but ceil(x.shape[axis] / size) along axis: one scale per `size` elements."""

    axis: int
    size: int


Granularity = PerTensor | PerChannel | PerBlock


class QScheme(enum.Enum):
    """PyTorch's four documented quantization schemes."""

    PER_TENSOR_AFFINE = "per_tensor_affine"
    PER_TENSOR_SYMMETRIC = "per_tensor_symmetric"
    PER_CHANNEL_AFFINE = "per_channel_affine"
    PER_CHANNEL_SYMMETRIC = "per_channel_symmetric"

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is fixed in the middle of the range."""
        return self in (QScheme.PER_TENSOR_SYMMETRIC, QScheme.PER_CHANNEL_SYMMETRIC)

    @property
    def per_channel(self) -> bool:
        """Whether each channel has its own scale."""
        return self in (QScheme.PER_CHANNEL_AFFINE, QScheme.PER_CHANNEL_SYMMETRIC)


per_tensor_affine = QScheme.PER_TENSOR_AFFINE
per_tensor_symmetric = QScheme.PER_TENSOR_SYMMETRIC
per_channel_affine = QScheme.PER_CHANNEL_AFFINE
per_channel_symmetric = QScheme.PER_CHANNEL_SYMMETRIC


@dataclass(frozen=True, slots=True, eq=False)
class QParams:
    """How real values map to codes.

    Attributes:
        scale: float32, positive, finite; shape () | (channels,) | blocked (see the granularity).
        zero_point: codes of dtype.storage, same shape as scale, inside [qmin, qmax].
        dtype: type of the codes.
        granularity: what one scale covers.

    Raises:
        ShapeError: a scale that is not positive and finite, a zero point outside the type, shapes that
            differ or do not suit the granularity.
    """

    scale: npt.NDArray[np.float32]
    zero_point: IntArray
    dtype: QDType
    granularity: Granularity = PerTensor()

    def __post_init__(self) -> None:
        scale = np.asarray(self.scale, np.float32)
        zero_point = np.asarray(self.zero_point)
        if not (np.isfinite(scale).all() and (scale > 0).all()):
            worst = scale[~(np.isfinite(scale) & (scale > 0))].flat[0]
            raise ShapeError(f"scale: got {worst}; wanted positive, finite numbers.")
        if zero_point.size and not (
            self.dtype.qmin <= zero_point.min() and zero_point.max() <= self.dtype.qmax
        ):
            raise ShapeError(
                f"zero_point: got {zero_point.min()}..{zero_point.max()}; "
                f"{self.dtype} holds {self.dtype.qmin}..{self.dtype.qmax}."
            )
        if scale.shape != zero_point.shape:
            raise ShapeError(
                f"scale has shape {scale.shape}, zero_point {zero_point.shape}; they must be equal."
            )
        wanted_rank = {PerTensor: 0, PerChannel: 1}.get(type(self.granularity), scale.ndim)
        if scale.ndim != wanted_rank:
            raise ShapeError(f"scale has rank {scale.ndim}; {self.granularity} wants {wanted_rank}.")
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", zero_point.astype(self.dtype.storage))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QParams):
            return NotImplemented
        return (
            self.dtype == other.dtype
            and self.granularity == other.granularity
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.granularity, self.scale.tobytes(), self.zero_point.tobytes()))


def per_tensor(scale: float | np.floating, zero_point: int, dtype: QDType) -> QParams:
    """QParams of one scale for the whole tensor."""
    return QParams(np.float32(scale), np.asarray(zero_point), dtype, PerTensor())


def _expand(values: npt.NDArray[np.generic], x: npt.NDArray[np.generic], p: QParams) -> npt.NDArray[np.generic]:
    """`values` (shaped as p.scale) in a shape that broadcasts with x.

    Raises:
        ShapeError: x has no such axis, or another number of channels or blocks.
    """
    match p.granularity:
        case PerTensor():
            return values
        case PerChannel(axis):
            axis = _checked_axis(axis, x.ndim)
            if x.shape[axis] != values.size:
                raise ShapeError(
                    f"axis {axis} of an array of shape {x.shape} has {x.shape[axis]} channels; "
                    f"scale has {values.size}."
                )
            return values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        case PerBlock(axis, size):
            axis = _checked_axis(axis, x.ndim)
            wanted = tuple(-(-n // size) if i == axis else n for i, n in enumerate(x.shape))
            if values.shape != wanted:
                raise ShapeError(
                    f"an array of shape {x.shape} in blocks of {size} along axis {axis} wants scale of "
                    f"shape {wanted}; got {values.shape}."
                )
            repeated = np.repeat(values, size, axis=axis)
            return np.take(repeated, np.arange(x.shape[axis]), axis=axis)


def _checked_axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside an array of rank {rank}.")
    return axis % rank


def quantize(x: FloatArray, p: QParams) -> IntArray:
    """Codes: saturate(rint(x / scale) + zero_point), NaN to qmin (as ONNX Runtime).

    Args:
        x: float16 or float32, any shape; computed in float32 (float64 for int32 codes).
        p: qparams whose granularity suits x's shape.
    Returns:
        p.dtype.storage, x's shape.
    Raises:
        ShapeError: channels or blocks of x and p differ.
    """
    work: type[np.floating] = np.float64 if p.dtype == INT32 else np.float32
    x = np.asarray(x)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        v = np.asarray(x.astype(work, copy=False) / _expand(p.scale, x, p).astype(work, copy=False))
    return _round_saturate(v, p, _expand(p.zero_point, x, p))


def _round_saturate(v: FloatArray, p: QParams, zero_point: npt.NDArray[np.generic]) -> IntArray:
    """saturate(rint(v) + zero_point), clamping before rounding so that ties do not depend on zero_point."""
    wide = np.int64 if p.dtype == INT32 else np.int32
    zp = zero_point.astype(wide)
    low, high = (p.dtype.qmin - zp).astype(v.dtype), (p.dtype.qmax - zp).astype(v.dtype)
    with np.errstate(invalid="ignore"):
        clamped = np.where(np.isnan(v), low, np.minimum(np.maximum(v, low), high))
    return np.asarray((np.rint(clamped).astype(wide) + zp).astype(p.dtype.storage))


def dequantize(q: IntArray, p: QParams) -> npt.NDArray[np.float32]:
    """Real values: (q - zero_point) * scale, in float32.

    Args:
        q: codes of p.dtype, any shape.
        p: qparams whose granularity suits q's shape.
    Raises:
        ShapeError: channels or blocks of q and p differ.
    """
    # int8 - int8 would wrap; int32 - int32 wraps in ONNX Runtime too, but a bias has zero point 0
    centred = q.astype(np.int32) - _expand(p.zero_point, q, p).astype(np.int32)
    return np.asarray(centred.astype(np.float32) * _expand(p.scale, q, p))


def requantize(acc: npt.NDArray[np.int32], multiplier: npt.NDArray[np.float32], p: QParams) -> IntArray:
    """Codes of an int32 accumulator: saturate(rint(float32(acc) * multiplier) + zero_point).

    Args:
        acc: int32, any shape; values beyond 2^24 are rounded to float32 first, as ONNX Runtime does.
        multiplier: float32, x_scale * w_scale / y_scale, rounded to float32 after each step; a shape
            that broadcasts with acc.
        p: per-tensor qparams of the result.
    """
    v = np.asarray(acc.astype(np.float32) * np.asarray(multiplier, np.float32))
    return _round_saturate(v, p, _expand(p.zero_point, acc, p))


def fake_quantize(x: FloatArray, p: QParams) -> npt.NDArray[np.float32]:
    """dequantize(quantize(x)): what is left of x after a round trip, float32, same shape."""
    return dequantize(quantize(x, p), p)
