"""Square root."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, positive


@function("Sqrt", ns_around=0.44, cases=positive, exponent=0.5)
def sqrt(x: Reals) -> Reals:
    """Y = sqrt(X); ONNX Sqrt-13.

    Integers of numbers below 0 give NaN, whose integer is the lowest.
    """
    return np.sqrt(x)
