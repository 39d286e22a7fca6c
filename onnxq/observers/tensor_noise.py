"""TensorNoise: the error that 8 bits would leave in a tensor, predicted from what was observed.

    error = sum_x (x - dequantize(quantize(x)))^2

A histogram says it without the tensor: values at an edge of the bins are points (a zero has no
error with any scale, and neither has a mask or a pixel that is a level), those inside a bin are
spread evenly over it. So a scale that is finer than the bins gives scale^2 / 12, one that is
coarser what its boundaries make of the counts, and a value below half an LSB is lost whole.

The two bins beside zero are the exception. Powers of a spectrum crowd there over many decades, so
that most of them are far below a bin's width w. Their number up to x is taken as a power of x that
the next bin continues: N0 (x / w)^b with N0 (2^b - 1) = N1, the counts of both. The mean of x^2 is
then w^2 b / (b + 2), which is w^2 / 3 where N0 = N1.
"""

import math
from dataclasses import dataclass

import numpy as np

from onnxq.core.arrays import Reals
from onnxq.observers._base import Observer
from onnxq.observers.histogram import HistogramObserver
from onnxq.observers.qparams_search import Moments
from onnxq.qparams import PerTensor, QParams

MOST_BITS = 16  # the sums below go over every integer
NO_NOISE_DB = 200.0  # beyond what float32 can say


@dataclass(frozen=True, slots=True)
class TensorNoise:
    """Powers per value of a tensor, and of the error that integers leave in it.

    Attributes:
        signal: mean of x^2; None where the observer has only the range.
        rounding: mean of the squared error of values that the integers reach; without a signal,
            scale^2 / 12, which is that of values spread over many integers.
        clipping: mean of the squared error of values beyond the first or the last integer.
        integers: effective number of integers in use, 2^entropy; without a signal, all of them.
    """

    signal: float | None
    rounding: float
    clipping: float
    integers: float

    @property
    def power(self) -> float:
        """Mean of the squared error."""
        return self.rounding + self.clipping

    @property
    def clipped_share(self) -> float:
        """Share of the error that clipping makes."""
        return self.clipping / self.power if self.power else 0.0

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(signal / power); None without a signal."""
        return None if self.signal is None else decibels(self.signal, self.power)


def noise_at(sqnr_db: float) -> float:
    """Noise over signal at that SQNR: 10^(-sqnr_db / 10)."""
    return math.pow(10.0, -sqnr_db / 10)


def accumulated_db(whole_db: float, local_db: float) -> float:
    """SQNR of what comes in: the power that the local error leaves of the whole one.

    Powers of errors that do not know of each other add up: accumulated = whole - local.

    Returns:
        inf where the local error is all there is; NaN where either is not known.
    """
    if math.isnan(whole_db) or math.isnan(local_db):
        return math.nan
    rest = noise_at(whole_db) - noise_at(local_db)
    return -10.0 * math.log10(rest) if rest > 0 else math.inf


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise), within +-NO_NOISE_DB."""
    if noise <= signal * noise_at(NO_NOISE_DB):
        return NO_NOISE_DB
    return 10 * math.log10(max(signal / noise, noise_at(NO_NOISE_DB)))


def predicted_noise(observer: Observer, qparams: QParams) -> TensorNoise | None:
    """TensorNoise of the observed tensor in these integers; None where nothing can be said."""
    if not isinstance(qparams.granularity, PerTensor) or qparams.dtype.bits > MOST_BITS:
        return None
    if not isinstance(observer, HistogramObserver):
        scale = float(qparams.scale)
        integers = qparams.dtype.qmax - qparams.dtype.qmin + 1
        return TensorNoise(None, scale * scale / 12, 0.0, float(integers))
    histogram = observer.histogram
    if histogram.minimum > histogram.maximum:
        return None
    moments, width = Moments(histogram), histogram.width
    scale = float(qparams.scale) / width
    zero = int(qparams.zero_point)
    low, high = qparams.dtype.qmin - zero, qparams.dtype.qmax - zero
    error = float(moments.squared_error(np.array([scale]), np.array([low]), np.array([high]))[0])
    clipping = min(_beyond(moments, scale, low, high), error)
    crowded = _crowded(moments)
    unit = width * width / max(moments.total, 1)
    # all of them have the integer 0 where half an LSB covers the bin
    rounding = error - clipping - (crowded if scale > 2 else 0.0)
    return TensorNoise(
        max(moments.square - crowded, 0.0) * unit,
        max(rounding, 0.0) * unit,
        clipping * unit,
        _integers(moments, scale, low, high),
    )


def _crowded(moments: Moments) -> float:
    """Excess of x^2 that an even spread gives the bins beside 0 over a power's (see the module)."""
    excess = 0.0
    for nearest, next_one in ((0, 1), (-1, -2)):
        near, far = (_count(moments, i) for i in (nearest, next_one))
        if near > far:
            b = math.log2(1 + far / near)
            excess += near * (1 / 3 - b / (b + 2))
    return excess


def _count(moments: Moments, edge: int) -> int:
    """Values inside the bin above that edge."""
    i = edge - moments.first
    return int(moments.inside[i]) if 0 <= i < moments.inside.size else 0


def _beyond(moments: Moments, scale: float, low: int, high: int) -> float:
    """Squared error of values half an LSB or more beyond the range, in bins' widths."""
    k = np.arange(moments.edges.size, dtype=np.float64) + moments.first
    above = _tail(k, moments, (high + 0.5) * scale, high * scale)
    below = _tail(-k, moments, (0.5 - low) * scale, -low * scale, upwards=-1)
    return above + below


def _tail(k: Reals, moments: Moments, start: float, limit: float, upwards: int = 1) -> float:
    """Sum of (x - limit)^2 over x >= start; upwards -1: of the mirrored histogram."""
    first, last = (k, k + 1) if upwards == 1 else (k - 1, k)
    first = np.clip(first, start, None)
    last = np.maximum(last, first)
    spread = ((last - limit) ** 3 - (first - limit) ** 3) / 3  # over a bin of width 1
    points = np.where(k >= start, (k - limit) ** 2, 0.0)
    return float((moments.inside * spread + moments.edges * points).sum())


def _integers(moments: Moments, scale: float, low: int, high: int) -> float:
    """2^entropy of the integers."""
    bounds = (np.arange(low, high, dtype=np.float64) + 0.5) * scale
    mass = np.concatenate([[0.0], moments.below(bounds)[0], [moments.total]])
    share = np.diff(mass) / moments.total
    share = share[share > 0]
    return float(2.0 ** -(share * np.log2(share)).sum())
