"""Rounding up."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Ceil", ns_around=0.41)
def ceil(x: Reals) -> Reals:
    """Y = the smallest whole number >= X; ONNX Ceil-13."""
    return np.ceil(x)
