from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Call
from tests.operators import builder
from tests.operators.builder import Types

OP = builder.operator("GroupNormalization")
CASES = {case.name: case for case in OP.cases()}


def test_a_group_per_channel_is_instance_normalization() -> None:
    case = CASES["a group per channel"]
    plan = builder.plan_of(OP, case, Types())
    integers = builder.integers_of(case, plan)
    (y,) = OP.kernel(Call(OP.op_type, integers, plan, attributes=case.attributes or {}))
    (wanted,) = builder.operator("InstanceNormalization").kernel(
        Call("InstanceNormalization", integers, plan)
    )
    assert np.array_equal(y, wanted)


def test_channels_that_do_not_divide_into_groups_are_named() -> None:
    case = CASES["plain"]
    plan = builder.plan_of(OP, case, Types())
    with pytest.raises(ShapeError, match="num_groups 4"):
        OP.kernel(
            Call(OP.op_type, builder.integers_of(case, plan), plan, attributes={"num_groups": 4})
        )
