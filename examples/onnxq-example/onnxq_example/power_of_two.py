"""A scheme: scales that are powers of two, for hardware that shifts instead of multiplying."""

from __future__ import annotations

import math

import numpy as np

from onnxq.observers import MinMaxObserver
from onnxq.qparams import QParams, per_tensor


class PowerOfTwoObserver(MinMaxObserver):
    """The least scale 2^k that covers the range seen; a subclass is known by its name at once.

    scale = 2^ceil(log2(s)), s the scale of MinMaxObserver;
    zero_point = quant_min - rint(min / scale), or that of the symmetric scheme.
    """

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerTensor."""
        exact = super().calculate_qparams()
        scale = 2.0 ** math.ceil(math.log2(exact.scale))
        if self.qscheme.symmetric or self.min_val > self.max_val:
            return per_tensor(scale, int(exact.zero_point), self.dtype)
        lowest = min(float(self.min_val), 0.0)
        zero_point = round(self.quant_min - lowest / scale)
        return per_tensor(
            scale, int(np.clip(zero_point, self.quant_min, self.quant_max)), self.dtype
        )
