from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.errors import ShapeError
from onnxq.operator import Case, NodePlan
from onnxq.operators.slice import Slice
from tests.operators import builder
from tests.operators.builder import SHARED, Codes, codes, copied

OP = Slice()


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
    inputs = [codes(size, 2), *case.inputs[1:]]
    (wanted,) = builder.run(builder.lowered_model(OP, case, plan, inputs), case, inputs)
    assert np.array_equal(OP.kernel(inputs, plan, {})[0], wanted)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(2, 3), np.array([0, 0]), np.array([1])), {}),
        ((codes(2, 3), np.array([0]), np.array([1]), np.array([2])), {}),
        ((codes(2, 3), np.array([0])), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
