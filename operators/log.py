"""Natural logarithm."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function, positive


@function("Log", ns_around=1.57, cases=positive)
def log(x: Reals) -> Reals:
    """Y = ln(X); ONNX Log-13.

    The integer of 0 gives -infinity, those of numbers below 0 give NaN; both have the lowest
    integer.
    """
    return np.log(x)
