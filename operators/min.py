"""Element-wise minimum."""

import numpy as np

from onnxq.operators._select import extremum
from onnxq.qparams import IntArray


@extremum("Min")
def minimum(a: IntArray, b: IntArray) -> IntArray:
    """Y = the smaller of all operands, element by element, with broadcasting; ONNX Min-13."""
    return np.asarray(np.minimum(a, b))
