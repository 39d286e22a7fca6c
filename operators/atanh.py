"""Inverse hyperbolic tangent."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, within


@function("Atanh", cases=lambda: within(-1, 1), defined=(-1.0, 1.0))
def atanh(x: Reals) -> Reals:
    """Y = atanh(X); ONNX Atanh-9. Infinity, at -1 and 1, saturates."""
    return np.arctanh(x)
