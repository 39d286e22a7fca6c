"""Euclidean norm along axes."""

import numpy as np

from onnxq.operator import Linear, Reals
from onnxq.operators._reduction import reduction


@reduction("ReduceL2", answer=Linear((0,), 1.0))
def reduce_l2(x: Reals, axes: tuple[int, ...]) -> Reals:
    """Y = sqrt(sum of X^2) over the given axes, or over all; ONNX ReduceL2-18.

    An error e of X moves Y by sum(X e) / Y: its power is that of e, as the squares of X / Y sum to
    1.
    """
    return np.asarray(np.sqrt(np.square(x).sum(axes, keepdims=True)))
