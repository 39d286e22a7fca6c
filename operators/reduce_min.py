"""Smallest element along axes."""

import numpy as np

from onnxq.operator import Array, Call
from onnxq.operators._reduce import cases, reduce_integers
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


@selection("ReduceMin", cases=cases, selects=True)
def reduce_min(call: Call, x: IntArray) -> Array:
    """Y = min of X over the given axes, or over all; ONNX ReduceMin-20."""
    return reduce_integers(call, x, np.minimum)
