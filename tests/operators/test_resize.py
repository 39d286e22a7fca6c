from __future__ import annotations

import numpy as np
import pytest

from onnxq.operator import Case, Float, Form, Role
from onnxq.operators.resize import Resize
from tests.operators import builder

OP = Resize()


X = np.zeros((1, 1, 2, 2), np.float32)
SCALES = np.array([1, 1, 2, 2], np.float32)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation_stays_float(mode: str) -> None:
    rule = builder.rule(OP, Case("", (X, None, SCALES), (2,), {"mode": mode}))
    assert isinstance(rule, Float)
    assert mode in rule.reason


def test_cropping_stays_float() -> None:
    roi = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    rule = builder.rule(OP, Case("", (X, roi, SCALES), (1, 2), attributes))
    assert isinstance(rule, Float)


def test_nearest_copies_codes() -> None:
    rule = builder.rule_of(OP, Case("", (X, None, SCALES), (2,)))
    assert rule.role is Role.MOVEMENT
    assert rule.form is Form.QDQ
