"""Rounding down."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Floor", ns_around=0.37)
def floor(x: Reals) -> Reals:
    """Y = the largest whole number <= X; ONNX Floor-13."""
    return np.floor(x)
