"""Error function."""

import math

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import SIGNED_UNIT, function


@function("Erf", ns_around=0.46, output_range=SIGNED_UNIT)
def erf(x: Reals) -> Reals:
    """Y = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to X; ONNX Erf-13.

    To the last bit or two of float64.
    """
    return np.vectorize(math.erf, otypes=[np.float64])(x) if x.size else x
