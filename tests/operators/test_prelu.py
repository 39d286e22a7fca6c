from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case, Float, NodePlan, Precision
from onnxq.operators.prelu import MAX_TABLES, PRelu
from tests.operators import builder
from tests.operators.builder import SHARED, copied, u8

OP = PRelu()
X = np.zeros((2, 3, 4), np.float32)


def lowered(slope: np.ndarray) -> list[str]:
    case = Case("", (X, slope.astype(np.float32)), (1,))
    plan, integers = NodePlan((SHARED, None), (SHARED,)), [X.astype(np.uint8), case.inputs[1]]
    return [node.op_type for node in builder.lowered_model(OP, case, plan, integers).graph]


def test_one_slope_is_a_leaky_relu() -> None:
    assert lowered(np.full((1, 1), 0.2)) == ["QLinearLeakyRelu"]


def test_slopes_by_channel_are_tables() -> None:
    assert "GatherElements" in lowered(np.ones((3, 1)))


def test_each_channel_has_its_slope() -> None:
    x = u8([[3, 7, 9], [3, 7, 9]])
    (y,) = copied(OP, x, np.array([[0.5], [-1]], np.float32))
    assert y.tolist() == [[5, 7, 9], [11, 7, 9]]


def test_very_many_slopes_and_slopes_at_run_time_compute_in_float() -> None:
    wide = np.zeros((2, MAX_TABLES + 1), np.float32)
    case = Case("", (wide, wide[0]), (1,))
    assert builder.rule_of(OP, case).precision is Precision.FLOAT_BETWEEN_QDQ
    found = builder.rule_of(OP, Case("", (X, X)))
    assert (found.precision, found.activations) == (Precision.FLOAT_BETWEEN_QDQ, (0, 1))


def test_infinite_slopes_stay_float() -> None:
    case = Case("", (X, np.array([np.inf], np.float32)), (1,))
    assert isinstance(builder.rule(OP, case), Float)


def test_slopes_must_broadcast_to_the_operand() -> None:
    with pytest.raises(ShapeError, match="PRelu"):
        copied(OP, u8([1, 2, 3]), np.ones(2, np.float32))
    with pytest.raises(ShapeError, match="PRelu"):
        copied(OP, u8([1, 2, 3]), np.ones((2, 3), np.float32))
