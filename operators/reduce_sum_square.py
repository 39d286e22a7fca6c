"""Sum of squares along axes."""

import numpy as np

from onnxq.operator import Curve, Reals
from onnxq.operators._reduction import reduction

SQUARE = 2.0


@reduction("ReduceSumSquare", answer=Curve(0, np.square, SQUARE))  # at least that of one summand
def reduce_sum_square(x: Reals, axes: tuple[int, ...]) -> Reals:
    """Y = sum of X^2 over the given axes, or over all; ONNX ReduceSumSquare-18."""
    return np.asarray(np.square(x).sum(axes, keepdims=True))
