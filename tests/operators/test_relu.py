from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, NodePlan, Role
from onnxq.operators.relu import Relu
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, codes, copied, u8

OP = Relu()


def test_codes_below_the_zero_point_go_up_to_it() -> None:
    assert copied(OP, u8([0, 7, 9]))[0].tolist() == [7, 7, 9]


def test_it_clamps_to_zero_and_above() -> None:
    rule = builder.rule_of(OP, Case("", (np.zeros(3, np.float32),)))
    assert rule.clamp == (0.0, float("inf"))
    assert rule.role is Role.CLAMP


def test_kernel_refuses_to_copy_codes_between_different_qparams() -> None:
    plan = NodePlan((SHARED,), (per_tensor(0.25, 7, UINT8),))
    with pytest.raises(ShapeError, match="equal qparams"):
        OP.kernel(Call(OP.op_type, [codes(2, 3)], plan))
