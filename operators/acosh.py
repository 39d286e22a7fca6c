"""Inverse hyperbolic cosine."""

import math

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, within


@function("Acosh", cases=lambda: within(1, 9), defined=(1.0, math.inf))
def acosh(x: Reals) -> Reals:
    """Y = acosh(X); ONNX Acosh-9."""
    return np.arccosh(x)
