from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq.dtypes import INT8, UINT8
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, Case, Float, Linear, NodePlan, Reals
from onnxq.operators.add import Add
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import integers

OP = Add()


P, Q = per_tensor(0.013, 3, UINT8), per_tensor(0.031, 200, UINT8)
OUT = per_tensor(0.04, 77, UINT8)


@given(
    a=st.lists(st.integers(1, 3), max_size=4),
    ones=st.lists(st.sampled_from("ab-"), min_size=4, max_size=4),
    cut=st.integers(-4, 4),
    seed=st.integers(0, 99),
)
@settings(max_examples=120, deadline=None)
def test_kernel_equals_onnx_runtime_for_any_broadcast(
    a: list[int], ones: list[str], cut: int, seed: int
) -> None:
    left = [1 if who == "a" else n for n, who in zip(a, ones, strict=False)]
    right = [1 if who == "b" else n for n, who in zip(a, ones, strict=False)]
    left, right = (left[cut:], right) if cut > 0 else (left, right[-cut:])
    random = np.random.default_rng(seed)
    plan = NodePlan((P, Q), (OUT,))
    inputs = [random.integers(0, 256, shape).astype(np.uint8) for shape in (left, right)]
    case = Case("broadcast", tuple(x.astype(np.float32) for x in inputs))
    (wanted,) = builder.run(builder.lowered_model(OP, case, plan, inputs), case, inputs)
    assert np.array_equal(OP.kernel(Call(OP.op_type, inputs, plan))[0], wanted)


def test_all_pairs_of_integers_equal_onnx_runtime() -> None:
    a, b = np.meshgrid(*[np.arange(256, dtype=np.uint8)] * 2)
    case = Case("pairs", (a.astype(np.float32), b.astype(np.float32)))
    for scale in (0.04, 0.026, 0.5, 1e-9, 1e-36):  # the last two leave int32
        plan = NodePlan((P, Q), (per_tensor(scale, 77, UINT8),))
        (wanted,) = builder.run(builder.lowered_model(OP, case, plan, [a, b]), case, [a, b])
        assert np.array_equal(OP.kernel(Call(OP.op_type, [a, b], plan))[0], wanted)


def test_masks_stay_float() -> None:
    x = np.zeros((2, 2), np.float32)
    case = Case("", (x, np.array([0, -np.inf], np.float32)), (1,))
    assert isinstance(builder.rule(OP, case), Float)


def test_mixed_types_are_not_lowered() -> None:
    x = np.zeros(2, np.float32)
    plan = NodePlan((P, per_tensor(0.1, 0, INT8)), (OUT,))
    with pytest.raises(UnsupportedError, match="int8, uint8"):
        builder.lowered_model(OP, Case("", (x, x)), plan, [integers(2), integers(2)])


@pytest.mark.parametrize(
    ("beside", "offset"), [(np.full((1, 4), 3.0), 3.0), (np.arange(4), None), (None, None)]
)
def test_a_number_is_added_to_what_became_zero(beside: Reals | None, offset: float | None) -> None:
    x = np.zeros((2, 4), np.float32)
    other = x if beside is None else beside.astype(np.float32)
    case = Case("", (x, other), () if beside is None else (1,))
    (response,) = OP.responses(builder.node_of(OP, case))
    assert response == Linear((0, 1), 1.0, offset)
