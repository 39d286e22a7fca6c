"""EntropyObserver: the range whose quantized distribution tells most of the original one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.observers._entropy import least_divergent_threshold
from onnxq.observers.histogram import HistogramObserver

if TYPE_CHECKING:
    from onnxq.qparams import QParams


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
