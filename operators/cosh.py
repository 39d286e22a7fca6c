"""Hyperbolic cosine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import anywhere, function


@function("Cosh", cases=lambda: anywhere(10))
def cosh(x: Reals) -> Reals:
    """Y = cosh(X); ONNX Cosh-9. Infinity saturates."""
    return np.cosh(x)
