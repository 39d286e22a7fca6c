"""Arc sine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, within


@function("Asin", cases=lambda: within(-1, 1), defined=(-1.0, 1.0))
def asin(x: Reals) -> Reals:
    """Y = asin(X); ONNX Asin-7."""
    return np.arcsin(x)
