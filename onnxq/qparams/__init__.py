"""Quantization parameters: a value, its granularity, and the scales that follow from others.

The functions that round by them are in onnxq.affine.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.errors import QConfigError, ShapeError, UnsupportedError

FloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.integer]

MIN_SCALE = np.float32(2**-126)  # smallest normal float32: an all-zero tensor must not give scale 0
MAX_BIAS_INTEGER = 2**30  # int32 sums wrap; half of their range is left for the products


@dataclass(frozen=True, slots=True)
class PerTensor:
    """One scale for the tensor: scale.shape == ()."""


@dataclass(frozen=True, slots=True)
class PerChannel:
    """scale has shape (channels,); channels = x.shape[axis]."""

    axis: int


@dataclass(frozen=True, slots=True)
class PerBlock:
    """scale has x's shape, but ceil(x.shape[axis] / size) along axis: one per `size` elements."""

    axis: int
    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ShapeError(f"block size: got {self.size}; wanted 1 or more.")


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
    """How real values map to integers.

    Attributes:
        scale: float32, positive, finite; shape () | (channels,) | blocked (see the granularity).
        zero_point: integers of dtype.storage, same shape as scale, inside [qmin, qmax].
        dtype: type of the integers.
        granularity: what one scale covers.

    The arrays are copied and read-only.
    Raises:
        UnsupportedError: dtype is not an integer type.
        ShapeError: a scale that is not positive and finite, a zero point outside the type, shapes
            that differ or do not suit the granularity.
    """

    scale: npt.NDArray[np.float32]
    zero_point: IntArray
    dtype: QDType
    granularity: Granularity = PerTensor()

    def __post_init__(self) -> None:
        if not self.dtype.is_integer:
            raise UnsupportedError(
                f"{self.dtype} is a storage type without scale and zero point; "
                "cast to it, or choose an integer type."
            )
        with np.errstate(over="ignore"):
            scale = np.array(self.scale, np.float32)
        zero_point = np.asarray(self.zero_point)
        _check_scale(scale)
        _check_zero_point(zero_point, self.dtype)
        if scale.shape != zero_point.shape:
            raise ShapeError(
                f"scale has shape {scale.shape}, zero_point {zero_point.shape}; they must be equal."
            )
        wanted_rank = {PerTensor: 0, PerChannel: 1}.get(type(self.granularity), scale.ndim)
        if scale.ndim != wanted_rank:
            raise ShapeError(
                f"scale has rank {scale.ndim}; {self.granularity} wants {wanted_rank}."
            )
        zero_point = zero_point.astype(self.dtype.storage)
        scale.setflags(write=False)  # a value that is hashed must not change
        zero_point.setflags(write=False)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", zero_point)

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

    @property
    def in_bytes(self) -> QParams:
        """Qparams of the same integers, one in a byte; those of blocks, which stay packed."""
        if isinstance(self.granularity, PerBlock):
            return self
        return dataclasses.replace(self, dtype=dtypes.in_bytes(self.dtype))

    def to_dict(self) -> dict[str, object]:
        """JSON values; float32 to the bit, since each prints as the double that it is."""
        return {
            "dtype": self.dtype.name,
            "granularity": _GRANULARITY_NAMES[type(self.granularity)],
            **{name: getattr(self.granularity, name) for name in _fields(type(self.granularity))},
            "shape": list(self.scale.shape),
            "scale": self.scale.ravel().tolist(),
            "zero_point": self.zero_point.ravel().tolist(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> QParams:
        """The QParams that `to_dict` wrote."""
        kinds = {name: kind for kind, name in _GRANULARITY_NAMES.items()}
        kind = kinds.get(str(values.get("granularity")))
        if kind is None:
            raise QConfigError(
                f"qparams: granularity is {values.get('granularity')!r}; "
                f"wanted one of {', '.join(kinds)}."
            )
        wanted = {"dtype", "granularity", "shape", "scale", "zero_point", *_fields(kind)}
        if set(values) != wanted:
            raise QConfigError(f"qparams: got keys {sorted(values)}; wanted {sorted(wanted)}.")
        shape = np.asarray(values["shape"], np.int64)
        return cls(
            np.asarray(values["scale"], np.float32).reshape(shape),
            np.asarray(values["zero_point"], np.int64).reshape(shape),
            dtypes.find(str(values["dtype"])),
            kind(*(int(str(values[name])) for name in _fields(kind))),
        )


_GRANULARITY_NAMES: dict[type[Granularity], str] = {
    PerTensor: "per_tensor",
    PerChannel: "per_channel",
    PerBlock: "per_block",
}


def _fields(kind: type[Granularity]) -> list[str]:
    return [field.name for field in fields(kind)]


def _check_scale(scale: npt.NDArray[np.float32]) -> None:
    if scale.ndim == 0 and 0 < scale.item() < math.inf:
        return
    good = np.isfinite(scale) & (scale > 0)
    if not good.all():
        raise ShapeError(
            f"scale: got {scale[~good].flat[0]}; wanted positive, finite float32 numbers."
        )


def _check_zero_point(zero_point: npt.NDArray[np.generic], dtype: QDType) -> None:
    fills_storage = dtype.bits == 8 * dtype.storage.itemsize
    if not zero_point.size or (zero_point.dtype == dtype.storage and fills_storage):
        return
    low, high = zero_point.min(), zero_point.max()
    if not (dtype.qmin <= low and high <= dtype.qmax):
        raise ShapeError(
            f"zero_point: got {low}..{high}; {dtype} holds {dtype.qmin}..{dtype.qmax}."
        )
    if not np.array_equal(zero_point, np.rint(zero_point)):
        raise ShapeError(f"zero_point: got {zero_point.flat[0]}...; wanted whole numbers.")


def product_scale(
    x_scale: npt.NDArray[np.float32], w_scale: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """x_scale * w_scale in float32, never 0; shape of w_scale, x_scale being ()."""
    with np.errstate(under="ignore"):  # a product of two tiny scales is 0 in float32
        return np.maximum(np.asarray(x_scale * w_scale), MIN_SCALE)


def sum_scale(x: QParams, w: QParams) -> npt.NDArray[np.float32]:
    """Scale of sums of products of integers, and of a bias added to them; see `product_scale`.

    Args:
        x: per tensor, of the activation.
        w: of the weight.
    Returns:
        Shape of w.scale.
    """
    return product_scale(x.scale, w.scale)


def scale_for_int32_bias(
    w_scale: npt.NDArray[np.float32], bias: FloatArray, x_scale: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Scales of a weight, larger in channels whose bias would leave the int32 accumulator.

    max(w_scale, |bias| / (x_scale * MAX_BIAS_INTEGER)), so that |bias / (x_scale * w_scale)| fits.

    Args:
        w_scale: (), or (channels,); groups of a transposed convolution share scales: channel o has
            that of o % len(w_scale).
        bias: (channels,), (rows, channels), or of one element for all; finite.
        x_scale: ().
    Returns:
        Shape of w_scale.
    """
    needed = np.abs(bias.astype(np.float64)) / (x_scale.astype(np.float64) * MAX_BIAS_INTEGER)
    if w_scale.ndim == 0:
        needed = needed.max(initial=0.0)
    else:
        groups = max(needed.size // max(w_scale.size, 1), 1)
        needed = needed.reshape(groups, -1).max(axis=0, initial=0.0)
    return np.maximum(w_scale, np.asarray(needed, np.float32))


def per_tensor(scale: float | np.floating, zero_point: int, dtype: QDType) -> QParams:
    """QParams of one scale for the whole tensor."""
    return QParams(np.asarray(scale, np.float32), np.asarray(zero_point), dtype, PerTensor())


def check_shape(shape: tuple[int, ...], p: QParams) -> None:
    """Raises ShapeError where an array of that shape has no such axis, other channels or blocks."""
    if isinstance(p.granularity, PerTensor):
        return
    rank, axis = len(shape), p.granularity.axis
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside an array of rank {rank}.")
    axis %= rank
    if isinstance(p.granularity, PerChannel):
        if shape[axis] != p.scale.size:
            raise ShapeError(
                f"axis {axis} of an array of shape {shape} has {shape[axis]} channels; "
                f"scale has {p.scale.size}."
            )
        return
    size = p.granularity.size
    wanted = tuple(-(-n // size) if i == axis else n for i, n in enumerate(shape))
    if p.scale.shape != wanted:
        raise ShapeError(
            f"an array of shape {shape} in blocks of {size} along axis {axis} wants scale of "
            f"shape {wanted}; got {p.scale.shape}."
        )


SHIFT = 128
"""From an int8 integer to the uint8 integer of the same number."""


def shifted(integers: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
    """The uint8 values of the numbers that int8 values stand for; the zero point is shifted too."""
    return (integers.astype(np.int16) + SHIFT).astype(np.uint8)


def stored_as(qparams: QParams, dtype: QDType) -> QParams:
    """The qparams with integers of that type, for the same numbers."""
    if qparams.dtype == dtype:
        return qparams
    assert (qparams.dtype, dtype) == (INT8, UINT8), "no other types stand for the same numbers"
    return dataclasses.replace(qparams, zero_point=shifted(qparams.zero_point), dtype=dtype)
