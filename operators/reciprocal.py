"""Reciprocal."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, positive


@function("Reciprocal", ns_around=0.32, cases=positive, exponent=-1.0)
def reciprocal(x: Reals) -> Reals:
    """Y = 1 / X; ONNX Reciprocal-13. The integer of 0 gives infinity, which saturates."""
    return np.reciprocal(x)
