"""Exponential linear unit."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Elu", ns_around=1.62, variants=({"alpha": 0.3},))
def elu(x: Reals, *, alpha: float = 1.0) -> Reals:
    """Y = X where X >= 0, else alpha * (exp(X) - 1); ONNX Elu-6."""
    return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))
