"""What ReduceMax and ReduceMin share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operators._attributes import Attributes, integer, integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.operator import Array
    from onnxq.qparams import IntArray


def reduce_codes(
    x: IntArray, function: np.ufunc, inputs: Sequence[Array | None], attributes: Attributes
) -> IntArray:
    """np.maximum or np.minimum over the axes in slot 1 (opset 18) or the attribute (13).

    Raises:
        ValueError: axes outside x, or nothing to reduce.
    """
    given = inputs[1] if len(inputs) > 1 else None
    axes = integers(attributes, "axes", []) if given is None else [int(axis) for axis in given]
    if not axes and integer(attributes, "noop_with_empty_axes", 0):
        return x.copy()
    keep = bool(integer(attributes, "keepdims", 1))
    return np.asarray(function.reduce(x, axis=tuple(axes) or None, keepdims=keep))
