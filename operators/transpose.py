"""Axes in another order."""

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from onnxq.operator import Array, Call, Case, Reals
from onnxq.operator.examples import normal
from onnxq.operators._select import selection
from onnxq.qparams import IntArray


def cases() -> Iterable[Case]:
    """The plain one, the nasty ones, an empty batch."""
    yield Case("reversed", (normal(2, 3, 4),))
    yield Case("permuted", (normal(2, 3, 4),), (), {"perm": [1, 2, 0]})
    yield Case("channels last", (normal(2, 3, 4, 5),), (), {"perm": [0, 2, 3, 1]})
    yield Case("empty batch", (normal(0, 3, 4),), (), {"perm": [0, 2, 1]})


def scale_before(node: ir.Node, scale: Reals) -> Reals:
    """The scale, with its axes back in the input's order."""
    order = node.attributes.get_ints("perm", range(scale.ndim)[::-1])
    return scale.transpose(np.argsort(np.array(order)))


@selection("Transpose", cases=cases, before=scale_before)
def transpose(call: Call, x: IntArray) -> Array:
    """Y[i_perm[0], i_perm[1], ...] = X[i_0, i_1, ...]; ONNX Transpose-13.

    Without perm the axes are reversed.
    """
    order = call.ints("perm", range(x.ndim)[::-1])
    return np.ascontiguousarray(x.transpose(order))
