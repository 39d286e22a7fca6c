from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case, Float, Precision, Summed
from onnxq.operator.examples import integers, ints
from onnxq.operators.reduce_sum import ReduceSum
from tests.operators import builder
from tests.operators.builder import copied

OP = ReduceSum()
X = np.zeros((2, 3, 4), np.float32)


def test_it_is_computed_in_float() -> None:
    assert (
        builder.rule_of(OP, Case("", (X, ints(1)), (1,))).precision is Precision.FLOAT_BETWEEN_QDQ
    )


def test_axes_computed_at_run_time_stay_float() -> None:
    rule = builder.rule(OP, Case("", (X, ints(1))))
    assert isinstance(rule, Float)
    assert "axes" in rule.reason.words


def test_sums_count_from_the_zero_point() -> None:
    x = np.array([[7, 9], [8, 8]], np.uint8)  # by SHARED: 0, 1 and 0.5, 0.5
    (y,) = copied(OP, x, ints(1), keepdims=0)
    assert y.tolist() == [9, 9]


@pytest.mark.parametrize("axes", [(2,), (-3,), (0, 0), (0, -2)])
def test_axes_that_do_not_fit_are_refused(axes: Any) -> None:
    with pytest.raises(ShapeError, match="ReduceSum: axes"):
        copied(OP, integers(2, 3), ints(*axes))


def test_errors_of_all_that_it_adds_come_out() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    (response,) = OP.responses(builder.node_of(OP, Case("", (x, ints(0, 2)), (1,))))
    assert response == Summed(0, 8)
    assert OP.responses(builder.node_of(OP, Case("", (x, ints(1))))) == (Summed(0, 1),)
