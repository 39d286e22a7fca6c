"""Gaussian error linear unit."""

import math

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function
from onnxq.operators.erf import erf

CUBIC = 0.044715  # Hendrycks and Gimpel, 2016


@function("Gelu", ns_around=0.56, variants=({"approximate": "tanh"},))
def gelu(x: Reals, *, approximate: str = "none") -> Reals:
    """Y = X / 2 * (1 + erf(X / sqrt(2))); ONNX Gelu-20.

    With approximate = "tanh": X / 2 * (1 + tanh(sqrt(2 / pi) * (X + 0.044715 X^3))).
    """
    if approximate == "tanh":
        return np.asarray(x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + CUBIC * x**3))))
    return np.asarray(x / 2 * (1 + erf(x / math.sqrt(2))))
