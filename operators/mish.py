"""Self-regularized non-monotonic activation."""

import numpy as np

from onnxq.operator import Reals
from onnxq.operators._function import function


@function("Mish", ns_around=10.2)
def mish(x: Reals) -> Reals:
    """Y = X * tanh(ln(1 + exp(X))); ONNX Mish-18.

    ONNX Runtime runs it as Softplus, Tanh and Mul.
    """
    return np.asarray(x * np.tanh(np.logaddexp(0, x)))
