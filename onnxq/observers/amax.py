"""AmaxObserver: a scale that follows from the largest absolute value (NVIDIA's convention).

Calibrates to what pytorch_quantization's descriptors say; see onnxq.pytorch.tensor_quant.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError, nearest
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers.histogram import (
    DEFAULT_BINS,
    EntropyObserver,
    HistogramObserver,
    PercentileObserver,
)
from onnxq.observers.narrow_range import NarrowRangeObserver
from onnxq.observers.value_range import EPS, granularity_along, range_of
from onnxq.qparams import QParams, QScheme

MAX = "max"
_HISTOGRAMS: dict[str, type[HistogramObserver]] = {
    "percentile": PercentileObserver,
    "mse": HistogramObserver,
    "entropy": EntropyObserver,
}


class AmaxObserver(Observer):
    """scale = scale_amax * amax / quant_max, zero_point = middle.

    amax is given, or the largest absolute value ("max"), or, per tensor, the percentile of the
    absolute values, the amax of least squared error ("mse") or least divergence ("entropy") on
    HistogramObserver's histogram; quant_max is the number of integers above 0, also of unsigned
    types. A channel gets at least eps times the largest channel's scale.

    Args:
        quant_max: largest integer, less that of 0; -quant_max is the smallest of signed types.
        ch_axis: axis of the channels; None for one scale.
        dtype: type of the integers.
        method: "max", "percentile", "mse" or "entropy".
        percentile: share of the values to keep, in percent; in (0, 100].
        amax: fixed, a number or numbers between spaces, one per channel; None: calibrated.
        scale_amax: scale on amax, > 0.
        eps: smallest scale, relative to the largest channel's.
        bins: of the histogram, as HistogramObserver.
        middle: integer of 0: 0, or 2^(bits-1) of an unsigned type, for values of both signs. ONNX
            Runtime runs such integers in integers wherever it runs int8, and in more places.

    State: NarrowRangeObserver's for "max" and a fixed amax, else HistogramObserver's.
    Raises:
        QConfigError: another method; a histogram per channel; numbers out of their range.
    """

    def __init__(
        self,
        quant_max: int = 127,
        ch_axis: int | None = None,
        dtype: QDType | str = dtypes.qint8,
        method: str = MAX,
        percentile: float = 99.99,
        amax: float | str | None = None,
        scale_amax: float = 1.0,
        eps: float = EPS,
        bins: int = DEFAULT_BINS,
        middle: int = 0,
    ) -> None:
        found = dtypes.find(dtype)
        if middle not in ((0,) if found.signed else (0, 1 << (found.bits - 1))):
            raise QConfigError(
                f"middle: got {middle} with {found}; wanted 0, or the middle integer."
            )
        both = found.signed or middle > 0
        # around a middle, the one integer more below 0 is used: cutting it off costs a node
        limits = middle - (quant_max + (middle > 0) if both else 0), quant_max + middle
        # of symmetric schemes, unsigned types have a middle of their own
        scheme = _scheme(ch_axis, found.signed)
        super().__init__(found, scheme, False, min(limits[0], 0), limits[1], eps)
        self.quant_min = limits[0]
        self.bound, self.middle = quant_max, middle
        if not 0 < scale_amax < np.inf:
            raise QConfigError(f"scale_amax: got {scale_amax}; wanted a positive number.")
        self.ch_axis, self.scale_amax = ch_axis, scale_amax
        self.fixed = None if amax is None else _numbers(amax, ch_axis)
        self.observer = self._observer_of(method, percentile, bins)
        # a ClassVar of Observer; here it depends on the method, so the instance has its own
        self.needs_range_alone = self.observer.needs_range_alone  # type: ignore[misc]  # see above

    def _observer_of(
        self, method: str, percentile: float, bins: int
    ) -> NarrowRangeObserver | HistogramObserver:
        """The observer that finds amax: its integers reach from -bound to bound."""
        if method == MAX or self.fixed is not None:
            # int32: holds the integers of every type
            return NarrowRangeObserver(self.bound, self.ch_axis, dtypes.INT32, self.eps)
        if method not in _HISTOGRAMS:
            known = [MAX, *_HISTOGRAMS]
            raise QConfigError(
                f"method: got '{method}'; wanted one of {', '.join(known)}."
                f"{nearest(str(method), known)}"
            )
        if self.ch_axis is not None:
            raise QConfigError(
                f"method '{method}' with ch_axis {self.ch_axis}: histograms are per tensor. Use "
                "method='max', or ch_axis=None."
            )
        spec = _HISTOGRAMS[method].with_args(
            dtype=dtypes.INT32,
            qscheme=QScheme.PER_TENSOR_SYMMETRIC,
            quant_min=-self.bound,
            quant_max=self.bound,
            eps=self.eps,
            bins=bins,
        )
        observer = (spec.with_args(percentile=percentile) if method == "percentile" else spec)()
        assert isinstance(observer, HistogramObserver)
        return observer

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Takes x into account.

        Raises:
            CalibrationError: as Observer; a negative value, and integers without sign.
        """
        if x.size == 0:
            return
        if not self.dtype.signed and not self.middle:
            low, _ = range_of(x, None, index)
            if low < 0:
                raise CalibrationError(
                    f"batch {index}: values down to {low:.6g}, and integers of {self.dtype} from 0 "
                    "on; use a signed type for this tensor."
                )
        self.observer.observe(x, index)

    def merge(self, other: Self) -> Self:
        """Observer that has seen what both have."""
        merged = self._fresh_for(other)
        if isinstance(self.observer, NarrowRangeObserver):
            assert isinstance(other.observer, NarrowRangeObserver)  # the specs are equal
            merged.observer = self.observer.merge(other.observer)
            return merged
        assert isinstance(other.observer, HistogramObserver)
        merged.observer = self.observer.merge(other.observer)
        return merged

    @property
    def has_observed(self) -> bool:
        """Whether amax is known: fixed, or some values were seen."""
        if self.fixed is not None:
            return True
        if isinstance(self.observer, NarrowRangeObserver):
            return self.observer.absmax.size > 0
        return bool(self.observer.histogram.minimum <= self.observer.histogram.maximum)

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerChannel(ch_axis), or PerTensor if that is None.

        Raises:
            CalibrationError: another number of channels than amax was given for.
        """
        granularity = granularity_along(self.ch_axis)
        if not self.has_observed:
            warn_unobserved(self)
            return self.range.default(granularity)
        seen = self.observer if self.fixed is None else self._fixed(self.fixed)
        scale = seen.calculate_qparams().scale * np.float32(self.scale_amax)
        scale = np.maximum(scale, np.finfo(np.float32).tiny)
        return QParams(scale, np.full(scale.shape, self.middle), self.dtype, granularity)

    def _fixed(self, fixed: Singles) -> NarrowRangeObserver:
        assert isinstance(self.observer, NarrowRangeObserver)
        channels = self.observer.absmax.shape
        if fixed.ndim and fixed.size > 1 and channels not in ((0,), fixed.shape):
            raise CalibrationError(
                f"amax was given for {fixed.size} channels; axis {self.ch_axis} has {channels[0]}. "
                "Give one number, or one for each channel."
            )
        one_for_all = fixed.size == 1 and self.ch_axis is not None and channels != (0,)
        given = NarrowRangeObserver(self.bound, self.ch_axis, dtypes.INT32, self.eps)
        given.absmax = np.broadcast_to(fixed, channels).copy() if one_for_all else fixed
        return given

    def amax(self) -> Singles:
        """Scale * quant_max: float32, shape () or (channels,); something was seen."""
        return np.asarray(self.calculate_qparams().scale * np.float32(self.bound), np.float32)

    def state(self) -> State:
        """State of the observer that finds amax."""
        return self.observer.state()

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes it over."""
        self.observer.load_state(state)


def _scheme(ch_axis: int | None, signed: bool) -> QScheme:
    if ch_axis is None:
        return QScheme.PER_TENSOR_SYMMETRIC if signed else QScheme.PER_TENSOR_AFFINE
    return QScheme.PER_CHANNEL_SYMMETRIC if signed else QScheme.PER_CHANNEL_AFFINE


def _numbers(amax: float | str, ch_axis: int | None) -> Singles:
    try:
        parts = [float(part) for part in str(amax).split()]
    except ValueError as error:
        raise QConfigError(f"amax: got {amax!r}; wanted numbers between spaces.") from error
    numbers = np.asarray(parts, np.float32)
    if numbers.size == 0 or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise QConfigError(f"amax: got {amax!r}; wanted finite numbers >= 0.")
    if ch_axis is None and numbers.size > 1:
        raise QConfigError(
            f"amax: got {numbers.size} numbers and ch_axis None; give ch_axis, or one number."
        )
    return numbers if ch_axis is not None else numbers[0]
