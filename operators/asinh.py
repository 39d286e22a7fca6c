"""Inverse hyperbolic sine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Asinh")
def asinh(x: Reals) -> Reals:
    """Y = asinh(X); ONNX Asinh-9."""
    return np.arcsinh(x)
