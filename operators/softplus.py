"""Smooth rectifier."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Softplus", ns_around=9.9)
def softplus(x: Reals) -> Reals:
    """Y = ln(1 + exp(X)), without overflow; ONNX Softplus-1."""
    return np.logaddexp(0, x)
