from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.operator import Call, Case, NodePlan
from tests.operators import builder
from tests.operators.builder import SHARED, integers

OP = builder.operator("Slice")


@given(
    size=st.integers(0, 6),
    start=st.integers(-9, 9),
    end=st.integers(-9, 9),
    step=st.sampled_from([-3, -1, 1, 2]),
)
@settings(max_examples=40, deadline=None)
def test_kernel_equals_onnx_runtime_for_any_range(
    size: int, start: int, end: int, step: int
) -> None:
    parameters = (np.array([n]) for n in (start, end, 0, step))
    case = Case("range", (np.zeros((size, 2), np.float32), *parameters), (1, 2, 3, 4))
    plan = NodePlan((SHARED, None, None, None, None), (SHARED,))
    inputs = [integers(size, 2), *case.inputs[1:]]
    (wanted,) = builder.run(builder.lowered_model(OP, case, plan, inputs), case, inputs)
    assert np.array_equal(OP.kernel(Call(OP.op_type, inputs, plan))[0], wanted)
