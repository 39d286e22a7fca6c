"""Arc tangent."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Atan")
def atan(x: Reals) -> Reals:
    """Y = atan(X); ONNX Atan-7."""
    return np.arctan(x)
