"""Cosine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import SIGNED_UNIT, function


@function("Cos", ns_around=1.39, output_range=SIGNED_UNIT)
def cos(x: Reals) -> Reals:
    """Y = cos(X), X in radians; ONNX Cos-7."""
    return np.cos(x)
