"""Arc cosine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, within


@function("Acos", cases=lambda: within(-1, 1), defined=(-1.0, 1.0))
def acos(x: Reals) -> Reals:
    """Y = acos(X); ONNX Acos-7."""
    return np.arccos(x)
