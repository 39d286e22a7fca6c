"""PercentileObserver: the range that leaves out a given share of the values."""

from __future__ import annotations

import numpy as np

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import QConfigError
from onnxq.observers.error_moments import Moments
from onnxq.observers.histogram import DEFAULT_BINS, HistogramObserver
from onnxq.observers.value_range import EPS
from onnxq.qparams import QParams, QScheme


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
