"""Kernels refuse shapes and attributes that do not fit, in words that name the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError
from tests.operators.builder import Codes, codes, copied

MASK = np.array([[True, False]])

# Named by what they compute; every other message names the operator.
WORDS = {"MatMul": "matrix product", "Gemm": "Gemm|matrix product", "Sub": "shape"}


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Add", (codes(3, 2), codes(2, 3)), {}),
        ("ArgMax", (codes(3, 2),), {"axis": 2}),
        ("ArgMax", (codes(0, 2),), {"axis": 0}),
        ("AveragePool", (codes(1, 1, 2),), {"kernel_shape": [3]}),
        ("AveragePool", (codes(1, 4),), {"kernel_shape": [2]}),
        ("AveragePool", (codes(1, 1, 4),), {}),
        ("Concat", (codes(3, 2), codes(2, 3)), {"axis": 0}),
        ("Concat", (codes(3, 2),), {"axis": 2}),
        ("Conv", (codes(1, 2, 3), codes(2, 1, 2)), {}),
        ("Conv", (codes(1, 2, 3), codes(2, 2, 2, 2)), {}),
        ("Conv", (codes(1, 2, 3), codes(3, 1, 2)), {"group": 2}),
        ("Conv", (codes(1, 2, 3), codes(2, 2, 4)), {}),
        ("Conv", (codes(1, 2, 3), codes(2, 2, 2)), {"kernel_shape": [3]}),
        ("Conv", (codes(1, 2, 3), codes(2, 2, 2)), {"strides": [1, 1]}),
        ("DepthToSpace", (codes(1, 3, 1, 1),), {"blocksize": 2}),
        ("DepthToSpace", (codes(4, 1, 1),), {"blocksize": 2}),
        ("DepthToSpace", (codes(1, 4, 1, 1),), {}),
        ("Expand", (codes(3, 2), np.array([3, 4])), {}),
        ("Expand", (codes(3, 2),), {}),
        ("Flatten", (codes(2, 3),), {"axis": 3}),
        ("Flatten", (codes(2, 3),), {"axis": -3}),
        ("Gather", (codes(3, 2), np.array([3])), {}),
        ("Gather", (codes(3, 2), np.array([0])), {"axis": 2}),
        ("Gather", (codes(3, 2),), {}),
        ("GatherElements", (codes(3, 2), np.array([0])), {}),
        ("GatherElements", (codes(3, 2), np.array([[3, 0]])), {}),
        ("GatherElements", (codes(3, 2), np.array([[0, 0]])), {"axis": 2}),
        ("GatherND", (codes(3, 2), np.array([[3, 0]])), {}),
        ("GatherND", (codes(3, 2), np.array([[0, 0, 0]])), {}),
        ("GatherND", (codes(3, 2), np.array([[0]])), {"batch_dims": 1}),
        ("Gemm", (codes(2, 3), codes(2, 3)), {}),
        ("Gemm", (codes(2, 3), codes(3)), {}),
        ("GlobalAveragePool", (codes(2, 3),), {}),
        ("GlobalAveragePool", (codes(2, 3, 0),), {}),
        ("MatMul", (codes(2, 3), codes(2, 3)), {}),
        ("MatMul", (codes(), codes(3)), {}),
        ("MatMul", (codes(2, 2, 3), codes(3, 3, 2)), {}),
        ("Max", (codes(3, 2), codes(2, 3)), {}),
        ("MaxPool", (codes(1, 1, 2),), {"kernel_shape": [3]}),
        ("MaxPool", (codes(1, 1, 4),), {"kernel_shape": [2, 2]}),
        ("MaxPool", (codes(1, 4),), {"kernel_shape": [2]}),
        ("MaxPool", (codes(1, 1, 4),), {}),
        ("MaxPool", (codes(1, 1, 4),), {"kernel_shape": [2], "auto_pad": "SAME"}),
        ("Min", (codes(3, 2), codes(2, 3)), {}),
        ("Mul", (codes(3, 2), codes(2, 3)), {}),
        ("Pad", (codes(3, 2), np.array([1, 1])), {}),
        ("Pad", (codes(3, 2), np.array([1, 1]), None, np.array([2])), {}),
        ("Pad", (codes(3, 2),), {}),
        ("ReduceMax", (codes(3, 2), np.array([2])), {}),
        ("ReduceMax", (codes(0, 2), np.array([0])), {}),
        ("ReduceMin", (codes(3, 2), np.array([2])), {}),
        ("ReduceMin", (codes(0, 2), np.array([0])), {}),
        ("Reshape", (codes(2, 3), np.array([4])), {}),
        ("Reshape", (codes(2, 3), np.array([1, 1, 0])), {}),
        ("Reshape", (codes(2, 3), np.array([-1, -1])), {}),
        ("Reshape", (codes(2, 3),), {}),
        ("Slice", (codes(2, 3), np.array([0, 0]), np.array([1])), {}),
        ("Slice", (codes(2, 3), np.array([0]), np.array([1]), np.array([2])), {}),
        ("Slice", (codes(2, 3), np.array([0])), {}),
        ("Softmax", (codes(3, 2),), {"axis": 2}),
        ("SpaceToDepth", (codes(1, 1, 3, 2),), {"blocksize": 2}),
        ("SpaceToDepth", (codes(4, 1, 1),), {"blocksize": 2}),
        ("SpaceToDepth", (codes(1, 4, 1, 1),), {}),
        ("Split", (codes(4, 2), np.array([3])), {}),
        ("Split", (codes(4, 2), np.array([5, -1])), {}),
        ("Split", (codes(4, 2),), {"axis": 2}),
        ("Squeeze", (codes(2, 3), np.array([0])), {}),
        ("Squeeze", (codes(1, 3), np.array([2])), {}),
        ("Sub", (codes(3, 2), codes(2, 3)), {}),
        ("Tile", (codes(3, 2), np.array([2])), {}),
        ("Tile", (codes(3, 2),), {}),
        ("Transpose", (codes(2, 3),), {"perm": [0, 2]}),
        ("Transpose", (codes(2, 3),), {"perm": [0]}),
        ("Unsqueeze", (codes(2, 3), np.array([4])), {}),
        ("Unsqueeze", (codes(2, 3), np.array([0, 0])), {}),
        ("Unsqueeze", (codes(2, 3),), {}),
        ("Where", (MASK, codes(3, 2), codes(2, 3)), {}),
        ("Where", (np.array([1, 0]), codes(2), codes(2)), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    op_type: str, inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    operator = catalog.find(op_type)
    assert operator is not None
    with pytest.raises(ShapeError, match=WORDS.get(op_type, op_type)):
        copied(operator, *inputs, **attributes)
