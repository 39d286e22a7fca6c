"""Element-wise maximum."""

import numpy as np

from onnxq.operators._select import extremum
from onnxq.qparams import IntArray


@extremum("Max")
def maximum(a: IntArray, b: IntArray) -> IntArray:
    """Y = the larger of all operands, element by element, with broadcasting; ONNX Max-13."""
    return np.asarray(np.maximum(a, b))
