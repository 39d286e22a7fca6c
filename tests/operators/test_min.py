from __future__ import annotations

import numpy as np

from onnxq.operator import Case, Float, Form
from tests.operators import builder
from tests.operators.builder import copied

OP = builder.operator("Min")


def test_operands_of_several_shapes_broadcast() -> None:
    x, y = np.array([[2], [5]], np.uint8), np.array([3], np.uint8)
    assert copied(OP, x, y)[0].ravel().tolist() == [2, 3]


def test_masks_stay_float() -> None:
    x = np.zeros((2, 2), np.float32)
    case = Case("", (x, np.array(-3.4e38, np.float32)), (1,))
    assert isinstance(builder.rule(OP, case), Float)


def test_onnx_runtime_has_the_kernel_but_no_fusion() -> None:
    x = np.zeros((2, 2), np.float32)
    rule = builder.rule_of(OP, Case("", (x, x, x)))
    assert rule.form is Form.CODES
    assert rule.activations == (0, 1, 2)
