"""Rounding to the nearest whole number."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Round", ns_around=0.32)
def nearest(x: Reals) -> Reals:
    """Y = the whole number nearest to X, halves to even; ONNX Round-11."""
    return np.rint(x)
