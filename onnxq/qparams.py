"""The numeric core: quantization parameters, and the only functions that round.

    quantize    q = saturate(rint(x / scale) + zero_point)       ONNX QuantizeLinear
    dequantize  x = (q - zero_point) * scale                     ONNX DequantizeLinear
    requantize  q = saturate(rint(acc * multiplier) + zero_point)

rint rounds halves to even, in float32, before the zero point is added, as ONNX Runtime does; the
ONNX text says "to nearest even" of x / scale. int32 is the exception: no runtime quantizes to it,
so it is computed in float64 and saturates. Arrays are worked on in chunks that fit a cache, so that
a weight mapped from disk costs its codes in memory and nothing else.

(Longer than 300 lines: the value and the arithmetic on it change together.)
"""

from __future__ import annotations

import dataclasses
import enum
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.dtypes import INT8, UINT8
from onnxq.errors import QConfigError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.dtypes import QDType

FloatArray = npt.NDArray[np.floating]
IntArray = npt.NDArray[np.integer]

MIN_SCALE = np.float32(2**-126)  # smallest normal float32: an all-zero tensor must not give scale 0
MAX_BIAS_CODE = 2**30  # int32 sums wrap; half of their range is left for the products
_CHUNK = (
    1 << 17
)  # elements: 512 KiB of float32 stay in a core's cache between the five operations on them


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
    """How real values map to codes.

    Attributes:
        scale: float32, positive, finite; shape () | (channels,) | blocked (see the granularity).
        zero_point: codes of dtype.storage, same shape as scale, inside [qmin, qmax].
        dtype: type of the codes.
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
        """The QParams that `to_dict` wrote.

        Raises:
            QConfigError: a key is missing or unknown, the dtype or granularity is not known.
            ShapeError: as the constructor.
        """
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
    """Scale of sums of products of codes, and of a bias added to them; see `product_scale`.

    Args:
        x: per tensor, of the activation.
        w: of the weight.

    Returns:
        Shape of w.scale.
    """
    return product_scale(x.scale, w.scale)


def raised_scale(
    w_scale: npt.NDArray[np.float32], bias: FloatArray, x_scale: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Scales of a weight, larger in channels whose bias would leave the int32 accumulator.

    max(w_scale, |bias| / (x_scale * MAX_BIAS_CODE)), so that |bias / (x_scale * w_scale)| fits.

    Args:
        w_scale: (), or (channels,); groups of a transposed convolution share scales: channel o has
            that of o % len(w_scale).
        bias: (channels,), (rows, channels), or of one element for all; finite.
        x_scale: ().

    Returns:
        Shape of w_scale.
    """
    needed = np.abs(bias.astype(np.float64)) / (x_scale.astype(np.float64) * MAX_BIAS_CODE)
    if w_scale.ndim == 0:
        needed = needed.max(initial=0.0)
    else:
        groups = max(needed.size // max(w_scale.size, 1), 1)
        needed = needed.reshape(groups, -1).max(axis=0, initial=0.0)
    return np.maximum(w_scale, np.asarray(needed, np.float32))


def per_tensor(scale: float | np.floating, zero_point: int, dtype: QDType) -> QParams:
    """QParams of one scale for the whole tensor."""
    return QParams(np.asarray(scale, np.float32), np.asarray(zero_point), dtype, PerTensor())


Index = tuple[slice, ...]  # of leading axes


def _chunks(shape: tuple[int, ...]) -> Iterator[Index]:
    """Indices of parts of at most _CHUNK elements that cover an array of that shape, in order."""
    if math.prod(shape) <= _CHUNK:
        yield ()
        return
    row = math.prod(shape[1:])
    if row <= _CHUNK:
        step = _CHUNK // row
        yield from ((slice(i, i + step),) for i in range(0, shape[0], step))
        return
    rests = list(_chunks(shape[1:]))
    yield from ((slice(i, i + 1), *rest) for i in range(shape[0]) for rest in rests)


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


Numbers = TypeVar("Numbers", bound=np.integer | np.floating)


def _part(
    values: npt.NDArray[Numbers], granularity: Granularity, shape: tuple[int, ...], index: Index
) -> npt.NDArray[Numbers]:
    """The scales or zero points of x[index], shaped to broadcast with it; x.shape is `shape`."""
    if values.ndim == 0 or isinstance(granularity, PerTensor):
        return values
    rank = len(shape)
    axis = granularity.axis % rank
    along = index[axis] if axis < len(index) else slice(None)
    if isinstance(granularity, PerChannel):
        return values[along].reshape([-1 if i == axis else 1 for i in range(rank)])
    others = tuple(slice(None) if i == axis else part for i, part in enumerate(index))
    blocks = np.arange(shape[axis])[along] // granularity.size
    return values[others].take(blocks, axis=axis)


def _uniform(values: npt.NDArray[Numbers]) -> npt.NDArray[Numbers]:
    """One value in place of many equal ones: NumPy clips to a scalar twice as fast as to many."""
    if values.size and (values == values.flat[0]).all():
        return np.asarray(values.flat[0])
    return values


def _work_dtype(dtype: QDType) -> np.dtype[np.floating]:
    """Where codes, and differences of codes, are exact: float32 up to 16 bits, as ONNX Runtime."""
    return np.dtype(np.float32 if dtype.bits <= 16 else np.float64)


def quantize(x: FloatArray, p: QParams) -> IntArray:
    """Codes: saturate(rint(x / scale) + zero_point), NaN to qmin (as ONNX Runtime).

    Some kernels of ONNX Runtime 1.31 (float16; blocks along any but the last axis; odd elements
    below 8 bits) convert x / scale to int32 before they clamp: NaN, Inf and quotients beyond 2^31
    give a code that depends on the CPU (x86: +Inf becomes 0). Here they saturate as elsewhere.

    Args:
        x: float16 or float32, any shape; computed in float32 (float64 for int32 codes).
        p: qparams whose granularity suits x's shape.

    Returns:
        p.dtype.storage, x's shape, C order.

    Raises:
        ShapeError: channels or blocks of x and p differ.
    """
    x = np.asarray(x)
    check_shape(x.shape, p)
    work = _work_dtype(p.dtype)
    zero_point = _uniform(p.zero_point)
    out = np.empty(x.shape, p.dtype.storage)
    for index in _chunks(x.shape):
        scale = _part(p.scale, p.granularity, x.shape, index).astype(work, copy=False)
        with np.errstate(all="ignore"):
            v = np.asarray(x[index].astype(work, copy=False) / scale)
        out[index] = _round_saturate(v, p.dtype, _part(zero_point, p.granularity, x.shape, index))
    return out


def _round_saturate(v: FloatArray, dtype: QDType, zero_point: IntArray) -> FloatArray:
    """saturate(rint(v) + zero_point) as whole floats, computed in v itself.

    Clamped before rounding, and rounded before the zero point is added: ties do not depend on it.
    """
    nan = np.isnan(v)
    if nan.any():
        np.copyto(v, -np.inf, where=nan)
    return _shift_saturate(v, dtype, zero_point)


def _shift_saturate(v: FloatArray, dtype: QDType, zero_point: IntArray) -> FloatArray:
    """Rounds and saturates, as `_round_saturate`, numbers without NaN."""
    zp = zero_point.astype(v.dtype)
    low, high = v.dtype.type(dtype.qmin) - zp, v.dtype.type(dtype.qmax) - zp
    np.clip(v, low, high, out=v)
    np.rint(v, out=v)
    return np.add(v, zp, out=v) if zp.any() else v


def dequantize(q: IntArray, p: QParams) -> npt.NDArray[np.float32]:
    """Real values: (q - zero_point) * scale, in float32.

    Args:
        q: codes of p.dtype, any shape.
        p: qparams whose granularity suits q's shape.

    Returns:
        float32, q's shape, C order; exact to half an ulp (int32 codes: q - zero_point is rounded to
        float32 first, as ONNX Runtime does). Its float16 result is this one cast to float16.

    Raises:
        ShapeError: channels or blocks of q and p differ.
    """
    q = np.asarray(q)
    check_shape(q.shape, p)
    zero_point = _uniform(p.zero_point)
    out = np.empty(q.shape, np.float32)
    for index in _chunks(q.shape):
        zp = _part(zero_point, p.granularity, q.shape, index)
        part = out[index] if index else out  # out[()] of rank 0 would be a copy
        if p.dtype.bits <= 16:
            part[...] = q[index]
            part -= zp.astype(np.float32)  # whole numbers below 2^17: exact
        else:
            part[...] = q[index].astype(np.int64) - zp.astype(np.int64)
        with np.errstate(over="ignore", under="ignore"):
            part *= _part(p.scale, p.granularity, q.shape, index)
    return out


def requantize(
    acc: npt.NDArray[np.int32], multiplier: npt.NDArray[np.float32] | np.float32, p: QParams
) -> IntArray:
    """Codes of an int32 accumulator: saturate(rint(float32(acc) * multiplier) + zero_point).

    Args:
        acc: int32, any shape; values beyond 2^24 are rounded to float32 first, as ONNX Runtime does
            (int32 codes: computed in float64).
        multiplier: float32, x_scale * w_scale / y_scale, rounded to float32 after each step; a
            shape that broadcasts with acc.
        p: qparams of the result, whose granularity suits acc's shape.

    Returns:
        p.dtype.storage, acc's shape.

    Raises:
        ShapeError: channels or blocks of acc and p differ.
    """
    acc = np.asarray(acc)
    check_shape(acc.shape, p)
    work = _work_dtype(p.dtype)
    factor = np.asarray(multiplier, np.float32).astype(work)
    finite = bool(np.isfinite(factor).all())
    factors = np.broadcast_to(factor, acc.shape) if factor.ndim else factor
    zero_point = _uniform(p.zero_point)
    out = np.empty(acc.shape, p.dtype.storage)
    with np.errstate(all="ignore"):
        for index in _chunks(acc.shape):
            v = np.asarray(acc[index].astype(work))
            v *= factors[index] if factor.ndim else factor
            zp = _part(zero_point, p.granularity, acc.shape, index)
            if not finite:
                np.copyto(v, -np.inf, where=np.isnan(v))  # 0 * inf: NaN becomes qmin
            out[index] = _shift_saturate(v, p.dtype, zp)
    return out


def fake_quantize(x: FloatArray, p: QParams) -> npt.NDArray[np.float32]:
    """dequantize(quantize(x)): what is left of x after a round trip, float32, same shape."""
    return dequantize(quantize(x, p), p)


def code_bounds(clamp: tuple[float, float], p: QParams) -> tuple[int, int]:
    """Codes of the ends of a clamp: quantize(clip(x)) = clip(quantize(x)), as rounding keeps order.

    Args:
        clamp: lowest and largest real value; may be infinite.
        p: per tensor.
    """
    low, high = quantize(np.array(clamp, np.float32), p)
    return int(low), int(high)


SHIFT = 128
"""From an int8 code to the uint8 code of the same number."""


def shifted(codes: npt.NDArray[np.integer]) -> npt.NDArray[np.uint8]:
    """The uint8 codes of the numbers that int8 codes stand for, beside a zero point shifted too."""
    return (codes.astype(np.int16) + SHIFT).astype(np.uint8)


def stored_as(qparams: QParams, dtype: QDType) -> QParams:
    """The qparams with codes of that type, for the same numbers.

    Args:
        qparams: of any type.
        dtype: the same type, or UINT8 in place of INT8.
    """
    if qparams.dtype == dtype:
        return qparams
    assert (qparams.dtype, dtype) == (INT8, UINT8), "no other types stand for the same numbers"
    return dataclasses.replace(qparams, zero_point=shifted(qparams.zero_point), dtype=dtype)
