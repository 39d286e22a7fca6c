"""Kernels refuse shapes and attributes that do not fit, in words that name the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError
from tests.operators.builder import Integers, copied, integers

MASK = np.array([[True, False]])

# Named by what they compute; every other message names the operator.
WORDS = {"MatMul": "matrix product", "Gemm": "Gemm|matrix product", "Sub": "shape"}


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Add", (integers(3, 2), integers(2, 3)), {}),
        ("ArgMax", (integers(3, 2),), {"axis": 2}),
        ("ArgMax", (integers(0, 2),), {"axis": 0}),
        ("AveragePool", (integers(1, 1, 2),), {"kernel_shape": [3]}),
        ("AveragePool", (integers(1, 4),), {"kernel_shape": [2]}),
        ("AveragePool", (integers(1, 1, 4),), {}),
        ("Concat", (integers(3, 2), integers(2, 3)), {"axis": 0}),
        ("Concat", (integers(3, 2),), {"axis": 2}),
        ("Conv", (integers(1, 2, 3), integers(2, 1, 2)), {}),
        ("Conv", (integers(1, 2, 3), integers(2, 2, 2, 2)), {}),
        ("Conv", (integers(1, 2, 3), integers(3, 1, 2)), {"group": 2}),
        ("Conv", (integers(1, 2, 3), integers(2, 2, 4)), {}),
        ("Conv", (integers(1, 2, 3), integers(2, 2, 2)), {"kernel_shape": [3]}),
        ("Conv", (integers(1, 2, 3), integers(2, 2, 2)), {"strides": [1, 1]}),
        ("DepthToSpace", (integers(1, 3, 1, 1),), {"blocksize": 2}),
        ("DepthToSpace", (integers(4, 1, 1),), {"blocksize": 2}),
        ("DepthToSpace", (integers(1, 4, 1, 1),), {}),
        ("Expand", (integers(3, 2), np.array([3, 4])), {}),
        ("Expand", (integers(3, 2),), {}),
        ("Flatten", (integers(2, 3),), {"axis": 3}),
        ("Flatten", (integers(2, 3),), {"axis": -3}),
        ("Gather", (integers(3, 2), np.array([3])), {}),
        ("Gather", (integers(3, 2), np.array([0])), {"axis": 2}),
        ("Gather", (integers(3, 2),), {}),
        ("GatherElements", (integers(3, 2), np.array([0])), {}),
        ("GatherElements", (integers(3, 2), np.array([[3, 0]])), {}),
        ("GatherElements", (integers(3, 2), np.array([[0, 0]])), {"axis": 2}),
        ("GatherND", (integers(3, 2), np.array([[3, 0]])), {}),
        ("GatherND", (integers(3, 2), np.array([[0, 0, 0]])), {}),
        ("GatherND", (integers(3, 2), np.array([[0]])), {"batch_dims": 1}),
        ("Gemm", (integers(2, 3), integers(2, 3)), {}),
        ("Gemm", (integers(2, 3), integers(3)), {}),
        ("GlobalAveragePool", (integers(2, 3),), {}),
        ("GlobalAveragePool", (integers(2, 3, 0),), {}),
        ("MatMul", (integers(2, 3), integers(2, 3)), {}),
        ("MatMul", (integers(), integers(3)), {}),
        ("MatMul", (integers(2, 2, 3), integers(3, 3, 2)), {}),
        ("Max", (integers(3, 2), integers(2, 3)), {}),
        ("MaxPool", (integers(1, 1, 2),), {"kernel_shape": [3]}),
        ("MaxPool", (integers(1, 1, 4),), {"kernel_shape": [2, 2]}),
        ("MaxPool", (integers(1, 4),), {"kernel_shape": [2]}),
        ("MaxPool", (integers(1, 1, 4),), {}),
        ("MaxPool", (integers(1, 1, 4),), {"kernel_shape": [2], "auto_pad": "SAME"}),
        ("Min", (integers(3, 2), integers(2, 3)), {}),
        ("Mul", (integers(3, 2), integers(2, 3)), {}),
        ("Pad", (integers(3, 2), np.array([1, 1])), {}),
        ("Pad", (integers(3, 2), np.array([1, 1]), None, np.array([2])), {}),
        ("Pad", (integers(3, 2),), {}),
        ("ReduceMax", (integers(3, 2), np.array([2])), {}),
        ("ReduceMax", (integers(0, 2), np.array([0])), {}),
        ("ReduceMin", (integers(3, 2), np.array([2])), {}),
        ("ReduceMin", (integers(0, 2), np.array([0])), {}),
        ("Reshape", (integers(2, 3), np.array([4])), {}),
        ("Reshape", (integers(2, 3), np.array([1, 1, 0])), {}),
        ("Reshape", (integers(2, 3), np.array([-1, -1])), {}),
        ("Reshape", (integers(2, 3),), {}),
        ("Slice", (integers(2, 3), np.array([0, 0]), np.array([1])), {}),
        ("Slice", (integers(2, 3), np.array([0]), np.array([1]), np.array([2])), {}),
        ("Slice", (integers(2, 3), np.array([0])), {}),
        ("Softmax", (integers(3, 2),), {"axis": 2}),
        ("SpaceToDepth", (integers(1, 1, 3, 2),), {"blocksize": 2}),
        ("SpaceToDepth", (integers(4, 1, 1),), {"blocksize": 2}),
        ("SpaceToDepth", (integers(1, 4, 1, 1),), {}),
        ("Split", (integers(4, 2), np.array([3])), {}),
        ("Split", (integers(4, 2), np.array([5, -1])), {}),
        ("Split", (integers(4, 2),), {"axis": 2}),
        ("Squeeze", (integers(2, 3), np.array([0])), {}),
        ("Squeeze", (integers(1, 3), np.array([2])), {}),
        ("Sub", (integers(3, 2), integers(2, 3)), {}),
        ("Tile", (integers(3, 2), np.array([2])), {}),
        ("Tile", (integers(3, 2),), {}),
        ("Transpose", (integers(2, 3),), {"perm": [0, 2]}),
        ("Transpose", (integers(2, 3),), {"perm": [0]}),
        ("Unsqueeze", (integers(2, 3), np.array([4])), {}),
        ("Unsqueeze", (integers(2, 3), np.array([0, 0])), {}),
        ("Unsqueeze", (integers(2, 3),), {}),
        ("Where", (MASK, integers(3, 2), integers(2, 3)), {}),
        ("Where", (np.array([1, 0]), integers(2), integers(2)), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    op_type: str, inputs: tuple[Integers | None, ...], attributes: dict[str, Any]
) -> None:
    operator = catalog.find(op_type)
    assert operator is not None
    with pytest.raises(ShapeError, match=WORDS.get(op_type, op_type)):
        copied(operator, *inputs, **attributes)
