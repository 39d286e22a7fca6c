from __future__ import annotations

import numpy as np

from onnxq.affine import quantize
from onnxq.operator import Call
from tests.operators import builder
from tests.operators.builder import Types

OP = builder.operator("InstanceNormalization")
CASES = {case.name: case for case in OP.cases()}


def test_planes_of_one_value_give_the_bias() -> None:
    case = CASES["constant planes"]
    plan = builder.plan_of(OP, case, Types())
    (y,) = OP.kernel(Call(OP.op_type, builder.integers_of(case, plan), plan))
    (q,) = plan.outputs
    assert q is not None
    wanted = quantize(np.asarray(case.inputs[2], np.float32), q)
    assert np.array_equal(y, np.broadcast_to(wanted[:, None, None], y.shape))
