"""HistogramObserver: the scale and zero_point of least squared error, from a histogram."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Reals
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers._base import Observer, State, check_qscheme, warn_unobserved
from onnxq.observers._bins import ZeroAnchoredHistogram
from onnxq.observers._every_kth import EveryKth
from onnxq.observers._search import search_qparams
from onnxq.observers.value_range import EPS, as_float32
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
        """QParams of granularity PerTensor; about 10 ms, once for all that was observed.

        Raises:
            CalibrationError: the range overflows float32.
        """
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
