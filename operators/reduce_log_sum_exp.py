"""Logarithm of a sum of exponentials along axes."""

import numpy as np

from onnxq.operator import Linear, Reals
from onnxq.operators._reduction import reduction


@reduction("ReduceLogSumExp", answer=Linear((0,), 1.0))
def reduce_log_sum_exp(x: Reals, axes: tuple[int, ...]) -> Reals:
    """Y = ln(sum of e^X) over the given axes, or over all; ONNX ReduceLogSumExp-18.

    Its slopes are the softmax of X, which sum to 1: no error of X grows, that of the largest
    summand comes out nearly whole. So it is a maximum more than a logarithm.
    """
    widest = x.max(axes, keepdims=True)
    return np.asarray(widest + np.log(np.exp(x - widest).sum(axes, keepdims=True)))
