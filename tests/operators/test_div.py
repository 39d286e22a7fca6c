from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import UINT8
from onnxq.operator import Call, Case, Float, InfiniteOperand, NodePlan, Precision, Rule
from onnxq.operators.div import Div
from onnxq.qparams import per_tensor
from tests.operators import builder

OP = Div()
X = np.ones((2, 3), np.float32)


def rule(a: np.ndarray, b: np.ndarray, *constants: int) -> Rule | Float:
    return builder.rule(OP, Case("", (a.astype(np.float32), b.astype(np.float32)), constants))


def test_only_what_varies_is_quantized() -> None:
    assert rule(X, X) == Rule(
        builder.rule_of(OP, Case("", (X, X))).category,
        (0, 1),
        precision=Precision.FLOAT_BETWEEN_QDQ,
    )
    for constants, varying in (((1,), (0,)), ((0,), (1,))):
        found = rule(X, np.arange(1, 4), *constants)
        assert isinstance(found, Rule)
        assert (found.activations, found.lowered) == (varying, False)


@pytest.mark.parametrize("divisor", [3, -1e30])
def test_a_number_multiplies_integers(divisor: float) -> None:
    found = rule(X, np.array(divisor), 1)
    assert isinstance(found, Rule)
    assert found.lowered


@pytest.mark.parametrize("divisor", [np.inf, 1e-40])
def test_numbers_whose_reciprocal_is_no_scale_stay_in_float_arithmetic(divisor: float) -> None:
    found = rule(X, np.array(divisor), 1)
    assert isinstance(found, Rule)
    assert found.precision is Precision.FLOAT_BETWEEN_QDQ


def test_a_constant_zero_leaves_no_scale_for_the_result() -> None:
    found = rule(X, np.array([1, 0, 2]), 1)
    assert isinstance(found, Float)
    assert isinstance(found.reason, InfiniteOperand)


@pytest.mark.parametrize("divisor", [3.0, -0.7])
def test_integers_by_a_number_are_those_of_the_float_quotient(divisor: float) -> None:
    p, q = per_tensor(0.05, 100, UINT8), per_tensor(0.031, 60, UINT8)
    x = np.arange(256, dtype=np.uint8)
    (y,) = OP.kernel(
        Call(OP.op_type, [x, np.array(divisor, np.float32)], NodePlan((p, None), (q,)))
    )
    assert np.array_equal(y, quantize(dequantize(x, p) / np.float32(divisor), q))
