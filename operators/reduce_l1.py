"""Sum of magnitudes along axes."""

import numpy as np

from onnxq.operator import Linear, Reals
from onnxq.operators._reduction import reduction


@reduction("ReduceL1", answer=Linear((0,), 1.0))  # at least the error of one of the summands
def reduce_l1(x: Reals, axes: tuple[int, ...]) -> Reals:
    """Y = sum of |X| over the given axes, or over all; ONNX ReduceL1-18."""
    return np.asarray(np.abs(x).sum(axes, keepdims=True))
