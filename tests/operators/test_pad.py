from __future__ import annotations

import numpy as np
import pytest

from onnxq.operator import Case, Float
from onnxq.operators.pad import Pad
from tests.operators import builder
from tests.operators.builder import copied, integers

OP = Pad()


X = np.zeros((2, 2), np.float32)
PADS = np.array([0, 1, 0, 0])


def test_padding_with_nothing_given_is_the_zero_point() -> None:
    assert copied(OP, integers(1, 2), PADS)[0].tolist() == [[7, 0, 1]]


@pytest.mark.parametrize("value", [float("-inf"), -3.4e38, float("nan")])
def test_infinite_borders_stay_float(value: float) -> None:
    case = Case("", (X, PADS, np.array(value, np.float32)), (1, 2))
    assert isinstance(builder.rule(OP, case), Float)


def test_border_other_than_zero_stays_float() -> None:
    rule = builder.rule(OP, Case("", (X, PADS, np.array(50, np.float32)), (1, 2)))
    assert isinstance(rule, Float)
    assert "outside the range" in rule.reason.words


def test_a_value_that_is_no_number_stays_float() -> None:
    rule = builder.rule(OP, Case("", (X, PADS, np.zeros(3, np.float32)), (1, 2)))
    assert isinstance(rule, Float)
    assert "no number" in rule.reason.words


def test_value_is_ignored_where_the_mode_does_not_read_it() -> None:
    case = Case("", (X, PADS, np.array(50, np.float32)), (1, 2), {"mode": "edge"})
    assert not builder.is_float(OP, case)


def test_border_computed_at_run_time_stays_float() -> None:
    rule = builder.rule(OP, Case("", (X, PADS, np.array(1, np.float32)), (1,)))
    assert isinstance(rule, Float)
    assert "run time" in rule.reason.words
