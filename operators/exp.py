"""Exponential."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import anywhere, function


@function("Exp", ns_around=0.26, cases=lambda: anywhere(10))
def exp(x: Reals) -> Reals:
    """Y = exp(X); ONNX Exp-13. Infinity saturates."""
    return np.exp(x)
