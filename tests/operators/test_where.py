from __future__ import annotations

import numpy as np

from onnxq.dtypes import UINT8
from onnxq.operator import Call, Case, Float, NodePlan
from onnxq.operator.examples import normal
from onnxq.operators.where import Where
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, copied, u8

OP = Where()


MASK = np.array([[True, False]])


def test_the_condition_selects() -> None:
    assert copied(OP, MASK, u8([[1, 2]]), u8([[3, 4]]))[0].tolist() == [[1, 4]]


def test_masks_stay_float() -> None:
    x = np.zeros((1, 2), np.float32)
    rule = builder.rule(OP, Case("", (MASK, x, np.array(-1e9, np.float32)), (2,)))
    assert isinstance(rule, Float)
    assert "infinity" in rule.reason.words


def test_operands_of_other_qparams_are_rescaled_as_onnx_runtime_does() -> None:
    mask = np.random.default_rng(1).random((2, 90)) > 0.5
    case = Case("", (mask, normal(2, 90), normal(90, seed=1)))
    plan = NodePlan((None, SHARED, per_tensor(0.013, 200, UINT8)), (per_tensor(0.026, 7, UINT8),))
    random = np.random.default_rng(0)
    x, y = (random.integers(0, 256, shape).astype(np.uint8) for shape in ((2, 90), (90,)))
    model = builder.lowered_model(OP, case, plan, [mask, x, y])
    assert [node.op_type for node in model.graph] == ["QLinearWhere"]
    (got,) = OP.kernel(Call(OP.op_type, [mask, x, y], plan))
    assert np.array_equal(got, builder.run(model, case, [mask, x, y])[0])
