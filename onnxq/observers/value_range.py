"""From the smallest and largest value to qparams, by PyTorch's formulas; and how to find these two.

    affine     scale = max((mx - mn) / (qmax - qmin), eps)
               zero_point = clip(qmin - rint(mn / scale))
    symmetric  scale = max(max(-mn, mx) / ((qmax - qmin) / 2), eps)
               zero_point = the middle integer

with mn = min(0, smallest) and mx = max(0, largest), all in float32. qint8 symmetric has scale =
absmax / 127.5, so that absmax itself saturates half an LSB below; onnxq's own NarrowRangeObserver
divides by 127.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError
from onnxq.qparams import Granularity, PerChannel, PerTensor, QParams, QScheme

_PER_TENSOR = PerTensor()
EPS = 2.0**-23  # torch.finfo(torch.float32).eps
FINE_EPS = 2.0**-60
"""For ranges below 3e-5, where EPS leaves no integers.

A product of two scales is a normal float32.
"""
_HALF = float(np.finfo(np.float32).max) / 2
_CHUNK = 1 << 17  # 512 KiB of float32: the second look at a chunk finds it in the cache


@dataclass(frozen=True, slots=True)
class QuantRange:
    """The integers that an observer may use, and the formulas that map a range of values onto them.

    Attributes:
        middle: zero point of the symmetric schemes.
    """

    dtype: QDType
    qscheme: QScheme
    quant_min: int
    quant_max: int
    middle: int
    eps: float

    @property
    def span(self) -> int:
        """Distance of the largest from the smallest integer."""
        return self.quant_max - self.quant_min

    def qparams(
        self, minimum: npt.ArrayLike, maximum: npt.ArrayLike, granularity: Granularity = _PER_TENSOR
    ) -> QParams:
        """The scale and zero_point that cover [minimum, maximum] and represent 0 exactly."""
        low = np.minimum(np.asarray(minimum, np.float32), np.float32(0))
        high = np.maximum(np.asarray(maximum, np.float32), np.float32(0))
        if self.qscheme.symmetric:
            scale = self._at_least_eps(np.maximum(-low, high) / np.float32(self.span / 2))
            return QParams(scale, np.full(scale.shape, self.middle), self.dtype, granularity)
        with np.errstate(over="ignore"):
            width = high - low
        if not np.isfinite(width).all():
            raise CalibrationError(
                f"values range from {low.min():.6g} to {high.max():.6g}, wider than "
                "float32 can say; use a symmetric qscheme, or leave the tensor float."
            )
        scale = self._at_least_eps(width / np.float32(self.span))
        # int64: torch's int32 wraps here for qint32 and gives a wrong zero point; this saturates
        zero_point = self.quant_min - np.rint(low / scale).astype(np.int64)
        zero_point = np.clip(zero_point, self.quant_min, self.quant_max)
        return QParams(scale, zero_point, self.dtype, granularity)

    def _at_least_eps(self, scale: npt.NDArray[np.floating]) -> Singles:
        # values that are all 0 ask for no scale: torch's, however small the eps
        floor = np.where(scale > 0, np.float32(self.eps), np.float32(max(self.eps, EPS)))
        return np.asarray(np.maximum(scale, floor), np.float32)

    def check_width(self, minimum: npt.ArrayLike, maximum: npt.ArrayLike, index: int) -> None:
        """Guards against a range that qparams() will refuse, while the batch is known."""
        if self.qscheme.symmetric:
            return
        if (
            isinstance(minimum, np.float32)
            and isinstance(maximum, np.float32)
            and max(-minimum, maximum) <= _HALF
        ):
            return  # as nearly always, in a tenth of the time
        low, high = np.ravel(minimum).astype(np.float64), np.ravel(maximum).astype(np.float64)
        width = np.maximum(high, 0) - np.minimum(low, 0)
        worst = width.argmax()
        if width[worst] > np.finfo(np.float32).max:
            raise CalibrationError(
                f"batch {index}: values range from {low[worst]:.6g} to {high[worst]:.6g}, "
                "wider than float32 can say; use a symmetric qscheme, or leave the tensor float."
            )

    def default(self, granularity: Granularity = _PER_TENSOR) -> QParams:
        """QParams of an observer that saw nothing: scale 1, zero_point 0."""
        shape = () if isinstance(granularity, PerTensor) else (1,)
        return QParams(
            np.ones(shape, np.float32), np.zeros(shape, np.int64), self.dtype, granularity
        )


def resolve_range(
    dtype: QDType,
    qscheme: QScheme,
    reduce_range: bool,
    quant_min: int | None,
    quant_max: int | None,
    eps: float,
) -> QuantRange:
    """The QuantRange that the documented constructor arguments ask for.

    reduce_range halves it: 0..127 of quint8, -64..63 of qint8; quant_min // 2, quant_max // 2 of a
    range that was given.
    """
    low, high = _quant_limits(dtype, quant_min, quant_max)
    unsigned_symmetric = qscheme.symmetric and not dtype.signed
    if reduce_range and unsigned_symmetric:
        raise QConfigError(
            f"reduce_range with {dtype} and {qscheme.value}: the zero point "
            f"{1 << (dtype.bits - 1)} lies outside the reduced range; use qint8, or affine."
        )
    if not float(np.finfo(np.float32).tiny) <= eps <= 1:  # NumPy converts no int of 10^400
        raise QConfigError(f"eps: got {eps}; the smallest scale is at least 2^-126, at most 1.")
    if reduce_range:
        low, high = low // 2, high // 2
    custom = quant_min is not None
    middle = 0
    if unsigned_symmetric:
        middle = (low + high) // 2 if custom else 1 << (dtype.bits - 1)
    return QuantRange(dtype, qscheme, low, high, middle, eps)


def _quant_limits(dtype: QDType, quant_min: int | None, quant_max: int | None) -> tuple[int, int]:
    if quant_min is None and quant_max is None:
        return dtype.qmin, dtype.qmax
    if quant_min is None or quant_max is None:
        raise QConfigError(f"got quant_min={quant_min}, quant_max={quant_max}; give both or none.")
    if not dtype.qmin <= quant_min <= 0 <= quant_max <= dtype.qmax or quant_min == quant_max:
        raise QConfigError(
            f"got quant_min={quant_min}, quant_max={quant_max}; wanted a range that encloses 0 and "
            f"lies inside {dtype}'s {dtype.qmin}..{dtype.qmax}."
        )
    return quant_min, quant_max


def as_float32(x: npt.ArrayLike, index: int) -> Singles:
    """The array as float32, without a copy if it is already."""
    array = np.asarray(x)
    if array.dtype == np.float32:
        return array
    # ml_dtypes' bfloat16 and float8 have kind V and a name
    if array.dtype.kind not in "fiub" and not array.dtype.name.startswith(("bfloat16", "float")):
        raise CalibrationError(
            f"batch {index}: got {array.dtype}; wanted an array of real numbers."
        )
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused as such
        return array.astype(np.float32)


def finite_range(x: Singles, index: int) -> tuple[np.float32, np.float32]:
    """Smallest and largest value of x (not empty), read once."""
    return min_max_of([(chunk.min(), chunk.max()) for _, chunk in chunks(x.reshape(-1))], x, index)


def chunks(flat: Singles) -> Iterator[tuple[int, Singles]]:
    """(where it begins, part of `flat` that stays in the cache while it is looked at twice)."""
    for start in range(0, flat.size, _CHUNK):
        yield start, flat[start : start + _CHUNK]


def min_max_of(
    parts: Sequence[tuple[np.float32, np.float32]], x: Singles, index: int
) -> tuple[np.float32, np.float32]:
    """Smallest and largest value of x from those of its parts, in which NaN and Inf show."""
    lows, highs = zip(*parts, strict=True)
    if not all(map(math.isfinite, (*lows, *highs))):
        raise_not_finite(x, index)
    return min(lows), max(highs)


def range_of(x: npt.ArrayLike, ch_axis: int | None, index: int) -> tuple[Singles, Singles]:
    """Smallest and largest value of x (not empty), or of each of its channels."""
    values = as_float32(x, index)
    if ch_axis is not None:
        return channel_range(values, ch_axis, index)
    low, high = finite_range(values, index)
    return np.asarray(low), np.asarray(high)


def folded(pick: np.ufunc, seen: Singles, more: Singles, ch_axis: int | None, what: str) -> Singles:
    """Minima or maxima of two parts of the data: pick(seen, more)."""
    if seen.size == 0 or more.size == 0:
        return more if seen.size == 0 else seen
    if seen.shape != more.shape:
        raise CalibrationError(
            f"{what}: got {more.size} channels on axis {ch_axis}; before there were {seen.size}. "
            "Is ch_axis the channels' axis?"
        )
    return np.asarray(pick(seen, more))


def granularity_along(ch_axis: int | None) -> Granularity:
    """PerChannel(ch_axis), or PerTensor where there is no axis."""
    return PerTensor() if ch_axis is None else PerChannel(ch_axis)


def channel_range(x: Singles, axis: int, index: int) -> tuple[Singles, Singles]:
    """Smallest and largest value of each channel, shape (channels,) both."""
    if not -x.ndim <= axis < x.ndim:
        raise CalibrationError(f"batch {index}: shape {x.shape} has no ch_axis {axis}.")
    others = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    minimum = np.asarray(x.min(axis=others))
    maximum = np.asarray(x.max(axis=others))
    if not (np.isfinite(minimum).all() and np.isfinite(maximum).all()):
        raise_not_finite(x, index)
    return minimum, maximum


def raise_not_finite(x: Singles, index: int) -> None:
    """Raises the CalibrationError for x, which holds NaN or Inf."""
    bad = ~np.isfinite(x)
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    raise CalibrationError(
        f"batch {index}: {np.count_nonzero(bad)} of {x.size} values are NaN or infinite in "
        f"float32, the first, {x[first]}, at {list(first)} of shape {list(x.shape)}; correct the "
        "sample, or the model that computes them from it."
    )
