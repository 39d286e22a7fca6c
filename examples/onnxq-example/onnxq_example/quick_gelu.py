"""An operator of the float model, in a domain that is not ONNX's own."""

from __future__ import annotations

import numpy as np

from onnxq.authoring import Reals, function


@function("QuickGelu", domain="com.microsoft", variants=({"alpha": 5.0},))
def quick_gelu(x: Reals, *, alpha: float = 1.702) -> Reals:
    """Y = X / (1 + exp(-alpha X)); element-wise, any shape. com.microsoft QuickGelu-1.

    ONNX Runtime has no integer kernel. A function of one integer is a table of 256 integers,
    though, and
    a table is exact by construction: the model and the reference read the same one.
    """
    return np.asarray(x / (1 + np.exp(-alpha * x)))
