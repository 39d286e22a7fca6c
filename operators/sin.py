"""Sine."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import SIGNED_UNIT, function


@function("Sin", ns_around=1.40, output_range=SIGNED_UNIT)
def sin(x: Reals) -> Reals:
    """Y = sin(X), X in radians; ONNX Sin-7."""
    return np.sin(x)
