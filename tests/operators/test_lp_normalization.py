from __future__ import annotations

from onnxq.operator import Call
from tests.operators import builder
from tests.operators.builder import Types

OP = builder.operator("LpNormalization")
CASES = {case.name: case for case in OP.cases()}


def test_rows_of_zeros_stay_zero() -> None:
    case = CASES["rows of zeros"]
    plan = builder.plan_of(OP, case, Types())
    (y,) = OP.kernel(Call(OP.op_type, builder.integers_of(case, plan), plan))
    (q,) = plan.outputs
    assert q is not None
    assert (y[0] == q.zero_point).all()
