from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import INT8, INT32, UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, Float, NodePlan, Rule, WeightSlot
from onnxq.operators.gemm import Gemm
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, Integers, integers

OP = Gemm()


A, B = np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)
BIAS = np.zeros(4, np.float32)


def rule(case: Case) -> Rule | Float:
    return builder.rule(OP, case)


def test_weight_axis_is_that_of_the_columns() -> None:
    assert builder.rule_of(OP, Case("", (A, B), (1,))).weight == WeightSlot(1, 1)
    turned = Case("", (A, B.T.copy()), (1,), {"transB": 1})
    assert builder.rule_of(OP, turned).weight == WeightSlot(1, 0)


def test_computed_b_is_an_activation() -> None:
    found = builder.rule_of(OP, Case("", (A, B)))
    assert found.activations == (0, 1)
    assert found.weight is None


@pytest.mark.parametrize(
    ("case", "word"),
    [
        (Case("", (A, B, BIAS), (1, 2), {"beta": 0.5}), "beta"),
        (Case("", (A, B, BIAS), (1, 2), {"alpha": 0.5}), "alpha"),
        (Case("", (A, B, BIAS), (1,)), "run time"),
        (Case("", (A, B, np.zeros((2, 1), np.float32)), (1, 2)), "per column"),
        (Case("", (A, B, np.zeros((), np.float32)), (1, 2)), "per column"),
        (Case("", (A, B, np.zeros((2, 4), np.float32)), (1, 2)), "per column"),
    ],
    ids=["beta", "alpha", "computed", "column", "scalar", "matrix"],
)
def test_biases_that_int32_cannot_hold_stay_float(case: Case, word: str) -> None:
    found = rule(case)
    assert isinstance(found, Float)
    assert word in found.reason.words


def test_bias_of_a_computed_b_is_float() -> None:
    assert isinstance(rule(Case("", (A, B, BIAS), (2,))), Float)


def test_accumulators_wrap_as_in_onnx_runtime() -> None:
    case = Case("wrap", (A[:1], B, BIAS), (1, 2))
    p = per_tensor(1.0, 0, UINT8)
    w = per_tensor(1.0, 0, INT8)
    plan = NodePlan((p, w, per_tensor(1.0, 0, INT32)), (None,))
    inputs: list[Integers] = [
        np.full((1, 3), 255, np.uint8),
        np.full((3, 4), 127, np.int8),
        np.full(4, 2**31 - 1, np.int32),
    ]
    (wanted,) = builder.run_exactly(builder.lowered_model(OP, case, plan, inputs), case, inputs)
    assert wanted.max() < 0
    assert np.array_equal(OP.kernel(Call(OP.op_type, inputs, plan))[0], wanted)


def test_kernel_refuses_a_bias_that_does_not_broadcast() -> None:
    plan = NodePlan((SHARED, SHARED, per_tensor(0.25, 0, INT32)), (SHARED,))
    with pytest.raises(ShapeError, match="bias"):
        OP.kernel(Call(OP.op_type, [integers(2, 3), integers(3, 4), np.zeros(3, np.int32)], plan))
