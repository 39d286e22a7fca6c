"""Continuously differentiable exponential linear unit."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Celu", ns_around=1.89, variants=({"alpha": 0.3},))
def celu(x: Reals, *, alpha: float = 1.0) -> Reals:
    """Y = max(0, X) + min(0, alpha * (exp(X / alpha) - 1)); ONNX Celu-12."""
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))
