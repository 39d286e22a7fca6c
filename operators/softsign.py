"""Smooth sign."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import SIGNED_UNIT, function


@function("Softsign", ns_around=0.31, output_range=SIGNED_UNIT)
def softsign(x: Reals) -> Reals:
    """Y = X / (1 + |X|); ONNX Softsign-1."""
    return np.asarray(x / (1 + np.abs(x)))
