"""Kernels refuse in words what ONNX Runtime refuses, or no model can hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq import catalog
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Call, IntegerCall, NodePlan

X = np.arange(75, dtype=np.uint8).reshape(1, 3, 5, 5)
A = np.arange(12, dtype=np.uint8).reshape(3, 4)
W = np.ones((4, 3, 3, 3), np.int8)
S: Any = np.float32(0.1)
Z: Any = np.uint8(3)
CONV = (X, S, Z, W, S, np.int8(0), S, Z)
MATRICES = (A[:, :3], S, Z, A, S, Z, S, Z)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "words"),
    [
        ("QLinearConv", CONV, {"pads": [-1] * 4}, "pads .*from 0"),
        ("QLinearConv", CONV, {"strides": [-1, -1]}, "strides .*from 1"),
        ("QLinearConv", CONV, {"strides": 2}, "strides is 2; wanted a list of ints"),
        ("QLinearConv", CONV, {"strides": "ab"}, "strides is 'ab'; wanted a list of ints"),
        ("QLinearConv", CONV, {"strides": [1.5, 1]}, "strides is .*; wanted a list of ints"),
        ("QLinearConv", CONV, {"group": "x"}, "group is 'x'; wanted an int"),
        ("QLinearMatMul", (*MATRICES[:2], 3, *MATRICES[3:]), {}, "zero_point has dtype int64"),
        ("MaxPool", (X,), {"kernel_shape": [2, 2], "pads": [-1] * 4}, "pads .*from 0"),
        ("Clip", (A, np.int8(5)), {}, "a bound or value is int8, the integers are uint8"),
        ("Pad", (A, np.array([9] * 4)), {"mode": "reflect"}, "9 elements beside an axis of 3"),
        ("Tile", (A, np.array([-1, 2])), {}, "wanted one per axis, from 0"),
    ],
)
def test_kernel_refuses(
    op_type: str, inputs: tuple[Any, ...], attributes: dict[str, Any], words: str
) -> None:
    operator = catalog.find_integer(op_type)
    assert operator is not None
    with pytest.raises(ShapeError, match=words):
        operator.kernel(IntegerCall(operator.op_type, inputs, attributes=attributes))


def test_alpha_must_be_a_number() -> None:
    operator = catalog.find_integer("QLinearLeakyRelu", "com.microsoft")
    assert operator is not None
    with pytest.raises(ShapeError, match="alpha is 'x'; wanted a float"):
        operator.kernel(IntegerCall(operator.op_type, (A, S, Z, S, Z), attributes={"alpha": "x"}))


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_the_smallest_of_nothing_is_refused(op_type: str) -> None:
    operator = catalog.find(op_type)
    assert operator is not None
    with pytest.raises(ShapeError, match="no inputs"):
        operator.kernel(Call(operator.op_type, [], NodePlan((), ())))


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_crops_of_integers_are_refused(mode: str) -> None:
    operator = catalog.find_integer("Resize")
    assert operator is not None
    roi = np.array([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9], np.float32)
    crop = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
    with pytest.raises(UnsupportedError):
        operator.kernel(
            IntegerCall(operator.op_type, (X, roi, None, np.array([1, 3, 4, 4])), attributes=crop)
        )
