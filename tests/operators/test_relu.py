from __future__ import annotations

import numpy as np

from onnxq.dtypes import UINT8
from onnxq.operator import Call, Case, NodePlan, OpCategory
from onnxq.operators.relu import Relu
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import copied, u8

OP = Relu()


def test_integers_below_the_zero_point_go_up_to_it() -> None:
    assert copied(OP, u8([0, 7, 9]))[0].tolist() == [7, 7, 9]


def test_it_clamps_to_zero_and_above() -> None:
    rule = builder.rule_of(OP, Case("", (np.zeros(3, np.float32),)))
    assert rule.clamp == (0.0, float("inf"))
    assert rule.category is OpCategory.CLAMP


def test_between_two_qparams_the_result_has_its_own_integers() -> None:
    plan = NodePlan((per_tensor(0.25, 128, UINT8),), (per_tensor(0.5, 0, UINT8),))
    x = np.array([[0, 127, 128, 130, 255]], np.uint8)
    (found,) = OP.kernel(Call(OP.op_type, [x], plan))
    np.testing.assert_array_equal(found, [[0, 0, 0, 1, 64]])  # 31.75 / 0.5 = 63.5, to even
