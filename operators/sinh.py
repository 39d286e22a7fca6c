"""Hyperbolic sine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import anywhere, function


@function("Sinh", cases=lambda: anywhere(10))
def sinh(x: Reals) -> Reals:
    """Y = sinh(X); ONNX Sinh-9. Infinity saturates."""
    return np.sinh(x)
