"""HistogramObserver: the scale and zero_point of least squared error, from a histogram."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Reals, Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers._base import Observer, State, check_qscheme, warn_unobserved
from onnxq.observers._bins import ZeroAnchoredHistogram
from onnxq.observers._every_kth import EveryKth
from onnxq.observers._saved_arrays import floats_of
from onnxq.observers.qparams_search import Moments, search_qparams
from onnxq.observers.value_range import EPS, as_float32, folded, range_of
from onnxq.qparams import QParams, QScheme

DEFAULT_BINS = 4096
MIN_BINS, MAX_BINS = 64, 1 << 16


class HistogramObserver(Observer):
    """Counts values in bins, and searches the qparams of least squared error (the L2 norm).

        minimise over scale and zero_point   sum_x (x - dequantize(quantize(x)))^2

    to within 1.5% (up to 5% below 160,000 values): of the qparams that are that near the least, it
    takes the one next to torch's own choice, since the last percents of a small sample's least do
    not hold on other data.

    Of a large tensor (49,152 values and more) every k-th is counted, and min and max are exact;
    _every_kth says how little that changes.

    The histogram has a fixed size, and merges exactly in any order (see _bins), so torch's
    upsampling of a histogram whose range grows has no counterpart. Integers of more than 12 bits
    take the whole range.

    Args:
        bins: bins for each sign, rounded up to a power of two; 32 bytes each. Between half and all
            of them cover the largest absolute value.
        upsample_rate: documented; accepted, and without effect.
        dtype: as Observer; the others too.

    State: see ZeroAnchoredHistogram.state.
    Raises:
        QConfigError: a per-channel qscheme; bins out of 64..65536; arguments that do not fit
            together.
    """

    def __init__(
        self,
        bins: int = DEFAULT_BINS,
        upsample_rate: int | None = None,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        check_qscheme(self, None)
        if not MIN_BINS <= bins <= MAX_BINS:
            raise QConfigError(f"bins: got {bins}; wanted {MIN_BINS} to {MAX_BINS}.")
        self.bins = bins
        self.upsample_rate = upsample_rate
        self.histogram = ZeroAnchoredHistogram(1 << (bins - 1).bit_length())
        self._searched: QParams | None = None  # of the histogram as it is: asked for repeatedly

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Counts the values of x, or part of a large one: some 2 ns for each that is counted."""
        if x.size == 0:
            return
        values = as_float32(x, index)
        counted = EveryKth.in_batch(values.shape, index).read(values, index)
        low, high = (
            min(counted.low, self.histogram.minimum),
            max(counted.high, self.histogram.maximum),
        )
        self.range.check_width(low, high, index)
        self.histogram.add_counted(counted)
        self._searched = None

    def observe_counts(self, counts: npt.NDArray[np.number], min_max: tuple[float, float]) -> None:
        """Counts what a histogram of even bins has counted, such as that of torch's observer.

        Within a bin values count as spread evenly: the result is that of the values themselves to
        within the width of a bin.

        Args:
            counts: (bins,), whole numbers.
            min_max: smallest and largest value, where the first bin begins and the last one ends.
        Raises:
            CalibrationError: counts that are negative or not finite; a range wider than float32.
        """
        if not np.isfinite(counts).all() or (counts < 0).any():
            raise CalibrationError(
                f"{type(self).__name__}: a histogram holds counts that are negative or not finite; "
                "wanted numbers of values."
            )
        whole = np.rint(counts).astype(np.int64)
        if whole.any():
            low, high = np.float32(min_max[0]), np.float32(min_max[1])
            self.range.check_width(low, high, 0)
            self.histogram.add_even(whole, low, high)
            self._searched = None

    def merge(self, other: Self) -> Self:
        """The counts of both."""
        merged = self._fresh_for(other)
        merged.histogram = self.histogram.merged(other.histogram)
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerTensor; about 10 ms, once for all that was observed."""
        if self.histogram.minimum > self.histogram.maximum:
            warn_unobserved(self)
            return self.range.default()
        if self._searched is None:
            self._searched = self._qparams()
        return self._searched

    def _qparams(self) -> QParams:
        """QParams of the histogram, which is not empty; for subclasses with another criterion."""
        return search_qparams(self.histogram, self.range)

    def occupied(self) -> tuple[Reals, Reals]:
        """(values, counts) float64: points, and the middle of each bin that counted something."""
        first, counts = self.histogram.dense()
        places = np.flatnonzero(counts)
        values = (first + places) / 2 * self.histogram.width
        min_max = float(self.histogram.minimum), float(self.histogram.maximum)
        return np.clip(values, *min_max), counts[places].astype(np.float64)

    def state(self) -> State:
        """The histogram's state."""
        return self.histogram.state()

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over the histogram."""
        self.histogram = ZeroAnchoredHistogram.from_state(self.histogram.bins, state)
        self._searched = None


# --- The range whose quantized distribution tells most of the original one


_CANDIDATES = 128


class EntropyObserver(HistogramObserver):
    """Scale and zero_point for the range [-T, T], cut to the values', of least KL divergence.

        minimise over T   sum_i P_i log(P_i / Q_i)

    P is the distribution of |x| below T, with all that is above T in its last bin; Q is P's part
    below T averaged over as many groups of bins as there are integers (Migacz, 8-bit inference with
    TensorRT, 2017). Exact zeros are left out, as 0 is always a level. Arguments and state are
    HistogramObserver's.
    """

    def _qparams(self) -> QParams:
        folded = self.histogram.absolute()
        if not folded.maximum > 0:
            return self.range.qparams(self.histogram.minimum, self.histogram.maximum)
        one_sided = self.histogram.minimum >= 0 or self.histogram.maximum <= 0
        whole = one_sided and not self.qscheme.symmetric
        levels = self.range.span + 1 if whole else (self.range.span + 1) // 2
        threshold = least_divergent_threshold(folded, levels)
        low = max(self.histogram.minimum, np.float32(-threshold))
        high = min(self.histogram.maximum, np.float32(threshold))
        return self.range.qparams(low, high)


def least_divergent_threshold(folded: ZeroAnchoredHistogram, levels: int) -> float:
    """The T of least divergence, among up to 128 between `levels` bins and all occupied ones."""
    first, counts = folded.dense()
    places = np.zeros(first + counts.size + 2, np.float64)
    places[first : first + counts.size] = counts
    places[0] = 0.0  # exact zeros
    # an edge belongs to the bin above it
    mass = places[0 : places.size // 2 * 2 : 2] + places[1::2]
    bins = int(np.flatnonzero(mass)[-1]) + 1
    if bins <= levels:
        return float(folded.maximum)
    widths = np.unique(np.linspace(levels, bins, _CANDIDATES).astype(np.int64))
    divergence = [_divergence(mass[:bins], int(end), levels) for end in widths]
    best = int(widths[int(np.argmin(divergence))])
    return min(best * folded.width, float(folded.maximum))


def _divergence(mass: Reals, end: int, levels: int) -> float:
    """KL(P || Q) for the threshold at bin `end`; Q spreads a group over its occupied bins."""
    inside = mass[:end]
    if not inside.any():
        return np.inf
    p = inside.copy()
    p[-1] += mass[end:].sum()
    starts = np.arange(levels) * end // levels
    occupied = inside > 0
    group = np.add.reduceat(inside, starts)
    members = np.add.reduceat(occupied.astype(np.int64), starts)
    sizes = np.diff(np.append(starts, end))
    q = np.repeat(group / np.maximum(members, 1), sizes) * occupied
    q /= q.sum()
    p /= p.sum()
    held = p > 0
    # the mass from above may land in an empty bin; a tiny share keeps the divergence finite, and
    # large
    return float((p[held] * np.log(p[held] / np.maximum(q[held], 1e-12))).sum())


# --- The range that leaves out a given share of the values


class PercentileObserver(HistogramObserver):
    """Scale and zero_point for the range that holds `percentile` percent of the values.

    affine: (100 - percentile) / 2 percent are left out on each side. symmetric: the percentile of
    the absolute values. Within a bin of HistogramObserver's histogram values count as spread
    evenly, so min and max are exact to a bin; each never leaves the range of the values. The range
    is widened to hold 0.

    Args:
        percentile: share of the values to keep, in percent; in (0, 100].
        bins: as HistogramObserver; the others too.
    Raises:
        QConfigError: a percentile outside (0, 100]; as HistogramObserver.
    """

    def __init__(
        self,
        percentile: float = 99.99,
        bins: int = DEFAULT_BINS,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(bins, None, dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        if not 0 < percentile <= 100:
            raise QConfigError(
                f"percentile: got {percentile}, out of its range: 0 < percentile <= 100."
            )
        self.percentile = percentile

    def _qparams(self) -> QParams:
        histogram, share = self.histogram, self.percentile / 100
        if self.qscheme.symmetric:
            folded = histogram.absolute()
            bound = min(Moments(folded).quantile(share) * folded.width, float(folded.maximum))
            return self.range.qparams(np.float32(-bound), np.float32(bound))
        moments = Moments(histogram)
        left_out = (1 - share) / 2
        low = moments.quantile(left_out) * histogram.width
        high = moments.quantile(1 - left_out) * histogram.width
        limits = float(histogram.minimum), float(histogram.maximum)
        low, high = (min(max(bound, limits[0]), limits[1]) for bound in (low, high))
        return self.range.qparams(np.float32(low), np.float32(high))


# --- A histogram that also keeps each channel's absmax


class ChannelHistogramObserver(HistogramObserver):
    """HistogramObserver's qparams; and, for the planner, absmax per channel.

    `prepare` puts it in place of HistogramObserver where a tensor is read by depthwise convolutions
    alone: the weights on both sides can then take an equalization scale per channel (see
    stages.channel_scales).

    Args:
        ch_axis: axis of the channels.
        bins: as HistogramObserver; the others too.

    State: HistogramObserver's, and channel_absmax: float32 (channels,), or (0,) before any data.
    """

    def __init__(
        self,
        ch_axis: int = 1,
        bins: int = DEFAULT_BINS,
        upsample_rate: int | None = None,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(
            bins, upsample_rate, dtype, qscheme, reduce_range, quant_min, quant_max, eps
        )
        self.ch_axis = ch_axis
        self.channel_absmax: Singles = np.empty(0, np.float32)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Counts the values of x, and raises each channel's absmax to that of x."""
        if x.size == 0:
            return
        low, high = range_of(x, self.ch_axis, index)
        absmax = np.maximum(-low, high)
        absmax = folded(np.maximum, self.channel_absmax, absmax, self.ch_axis, f"batch {index}")
        super().observe(x, index)
        self.channel_absmax = absmax

    def merge(self, other: Self) -> Self:
        """The counts of both, and the larger absmax."""
        merged = super().merge(other)
        seen = self.channel_absmax, other.channel_absmax
        merged.channel_absmax = folded(np.maximum, *seen, self.ch_axis, "merge")
        return merged

    def state(self) -> State:
        """The histogram's state, and channel_absmax."""
        return {**super().state(), "channel_absmax": self.channel_absmax}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over histogram and absmax."""
        super().load_state({k: v for k, v in state.items() if k != "channel_absmax"})
        self.channel_absmax = np.abs(floats_of(state, "channel_absmax", 1))
