from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import INT8, UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, NodePlan
from onnxq.operator.examples import normal
from onnxq.operators.concat import Concat
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, integers

OP = Concat()


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -1e9, 1e6])
def test_constants_that_stand_for_infinity_stay_float(value: float) -> None:
    x = np.zeros((2, 2), np.float32)
    mask = np.array([[0, value], [0, 0]], np.float32)
    assert builder.is_float(OP, Case("", (x, mask), (1,), {"axis": 0}))


def test_all_parts_share_qparams() -> None:
    x = np.zeros((2, 2), np.float32)
    rule = builder.rule_of(OP, Case("", (x, x, x), attributes={"axis": 0}))
    assert rule.activations == (0, 1, 2)
    assert rule.shares_qparams


def test_parts_of_other_qparams_are_rescaled_as_onnx_runtime_does() -> None:
    case = Case("", (normal(2, 90), normal(2, 70, seed=1)), attributes={"axis": 1})
    plan = NodePlan((SHARED, per_tensor(0.013, 200, UINT8)), (per_tensor(0.026, 7, UINT8),))
    random = np.random.default_rng(0)
    parts = [random.integers(0, 256, (2, n)).astype(np.uint8) for n in (90, 70)]
    model = builder.lowered_model(OP, case, plan, parts)
    assert [node.op_type for node in model.graph] == ["QLinearConcat"]
    (got,) = OP.kernel(Call(OP.op_type, parts, plan, attributes={"axis": 1}))
    assert np.array_equal(got, builder.run(model, case, parts)[0])


def test_kernel_refuses_parts_of_another_type() -> None:
    plan = NodePlan((SHARED, per_tensor(0.25, 7, INT8)), (SHARED,))
    with pytest.raises(ShapeError, match="int8"):
        OP.kernel(
            Call(
                OP.op_type,
                [integers(2, 3), integers(2, 3).astype(np.int8)],
                plan,
                attributes={"axis": 0},
            )
        )
