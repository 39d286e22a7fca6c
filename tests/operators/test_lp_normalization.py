from __future__ import annotations

from onnxq.operator import Call, Form
from onnxq.operators.lp_normalization import LpNormalization
from tests.operators import builder
from tests.operators.builder import Types

OP = LpNormalization()
CASES = {case.name: case for case in OP.cases()}


def test_it_computes_in_float_and_only_its_data_are_codes() -> None:
    for case in CASES.values():
        rule = builder.rule_of(OP, case)
        assert rule.form is Form.FLOAT
        assert rule.activations == (0,)
        assert rule.weight is None


def test_rows_of_zeros_stay_zero() -> None:
    case = CASES["rows of zeros"]
    plan = builder.plan_of(OP, case, Types())
    (y,) = OP.kernel(Call(OP.op_type, builder.codes_of(case, plan), plan))
    (q,) = plan.outputs
    assert q is not None
    assert (y[0] == q.zero_point).all()
