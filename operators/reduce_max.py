"""Largest element along axes."""

import numpy as np

from onnxq.operator import Array, Call
from onnxq.operators._reduce import cases, reduce_integers
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


@selection("ReduceMax", cases=cases, selects=True)
def reduce_max(call: Call, x: IntArray) -> Array:
    """Y = max of X over the given axes, or over all; ONNX ReduceMax-20."""
    return reduce_integers(call, x, np.maximum)
