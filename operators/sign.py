"""Sign."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import SIGNED_UNIT, function


@function("Sign", ns_around=0.86, output_range=SIGNED_UNIT)
def sign(x: Reals) -> Reals:
    """Y = -1, 0 or 1; ONNX Sign-13."""
    return np.sign(x)
