"""Tangent."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, within


@function("Tan", cases=lambda: within(-1.4, 1.4))
def tan(x: Reals) -> Reals:
    """Y = tan(X), X in radians; ONNX Tan-7."""
    return np.tan(x)
