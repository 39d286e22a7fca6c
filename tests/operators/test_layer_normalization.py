from __future__ import annotations

import dataclasses

import numpy as np

from onnxq.affine import quantize
from onnxq.operator import Call, Float
from tests.operators import builder
from tests.operators.builder import Types

OP = builder.operator("LayerNormalization")
CASES = {case.name: case for case in OP.cases()}


def test_mean_and_deviation_that_are_read_leave_it_in_float() -> None:
    case = dataclasses.replace(CASES["plain"], outputs=3)
    verdict = builder.rule(OP, case)
    assert isinstance(verdict, Float)
    assert "mean" in verdict.reason.words


def test_constant_rows_give_the_bias() -> None:
    case = CASES["constant rows"]
    plan = builder.plan_of(OP, case, Types())
    (y,) = OP.kernel(Call(OP.op_type, builder.integers_of(case, plan), plan))
    (q,) = plan.outputs
    assert q is not None
    wanted = quantize(np.asarray(case.inputs[2], np.float32), q)
    assert np.array_equal(y, np.broadcast_to(wanted, y.shape))
