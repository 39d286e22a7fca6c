"""Scaled exponential linear unit."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function

ALPHA, GAMMA = 1.67326319218681884765625, 1.05070102214813232421875  # of the ONNX schema


@function("Selu", ns_around=1.60, variants=({"alpha": 0.3, "gamma": 2.0},))
def selu(x: Reals, *, alpha: float = ALPHA, gamma: float = GAMMA) -> Reals:
    """Y = gamma * X where X > 0, else gamma * alpha * (exp(X) - 1); ONNX Selu-6."""
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))
