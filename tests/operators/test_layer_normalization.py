from __future__ import annotations

import dataclasses

import numpy as np

from onnxq.operator import Call, Float, Form
from onnxq.operators.layer_normalization import LayerNormalization
from onnxq.qparams import quantize
from tests.operators import builder
from tests.operators.builder import Types

OP = LayerNormalization()
CASES = {case.name: case for case in OP.cases()}


def test_it_computes_in_float_and_only_its_data_are_codes() -> None:
    for case in CASES.values():
        rule = builder.rule_of(OP, case)
        assert rule.form is Form.FLOAT
        assert rule.activations == (0,)
        assert rule.weight is None


def test_mean_and_deviation_that_are_read_leave_it_in_float() -> None:
    case = dataclasses.replace(CASES["plain"], outputs=3)
    verdict = builder.rule(OP, case)
    assert isinstance(verdict, Float)
    assert "mean" in verdict.reason


def test_constant_rows_give_the_bias() -> None:
    case = CASES["constant rows"]
    plan = builder.plan_of(OP, case, Types())
    (y,) = OP.kernel(Call(OP.op_type, builder.codes_of(case, plan), plan))
    (q,) = plan.outputs
    assert q is not None
    wanted = quantize(np.asarray(case.inputs[2], np.float32), q)
    assert np.array_equal(y, np.broadcast_to(wanted, y.shape))
