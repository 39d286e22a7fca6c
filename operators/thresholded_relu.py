"""Rectifier with a threshold."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("ThresholdedRelu", ns_around=0.23, variants=({"alpha": 0.3}, {"alpha": -0.3}))
def thresholded_relu(x: Reals, *, alpha: float = 1.0) -> Reals:
    """Y = X where X > alpha, else 0; ONNX ThresholdedRelu-10."""
    return np.where(x > alpha, x, 0.0)
