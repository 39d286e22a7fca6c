"""Smooth rectifier."""

from __future__ import annotations

import numpy as np

from onnxq.operators._function import Reals, function


@function("Softplus", ns_around=9.9)
def softplus(x: Reals) -> Reals:
    """Y = ln(1 + exp(X)), without overflow; ONNX Softplus-1."""
    return np.logaddexp(0, x)
