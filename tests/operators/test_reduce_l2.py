from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case, Float, Linear, Precision
from onnxq.operator.examples import integers, ints
from tests.operators import builder
from tests.operators.builder import copied, operator, u8

OP = operator("ReduceL2")
X = np.zeros((2, 3, 4), np.float32)


def test_three_and_four_have_norm_five() -> None:
    assert copied(OP, u8([[13, 15]]), ints(1), keepdims=0)[0].tolist() == [17]  # 3 and 4 by SHARED


def test_without_axes_that_is_no_reduction_each_element_has_its_magnitude() -> None:
    (y,) = copied(OP, u8([[3, 9]]), ints(), noop_with_empty_axes=1)
    assert y.tolist() == [[11, 9]]


def test_it_is_computed_in_float() -> None:
    assert (
        builder.rule_of(OP, Case("", (X, ints(1)), (1,))).precision is Precision.FLOAT_BETWEEN_QDQ
    )


def test_axes_computed_at_run_time_stay_float() -> None:
    rule = builder.rule(OP, Case("", (X, ints(1))))
    assert isinstance(rule, Float)
    assert "axes" in rule.reason.words


@pytest.mark.parametrize("axes", [(2,), (-3,), (0, 0), (0, -2)])
def test_axes_that_do_not_fit_are_refused(axes: Any) -> None:
    with pytest.raises(ShapeError, match="ReduceL2: axes"):
        copied(OP, integers(2, 3), ints(*axes))


def test_an_error_of_one_summand_comes_out_as_it_is() -> None:
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(10_000, 2)), 1e-3 * rng.normal(size=(10_000, 2))
    error = np.hypot(*(x + e).T) - np.hypot(*x.T)
    (response,) = OP.responses(builder.node_of(OP, Case("", (X, ints(1)), (1,))))
    assert isinstance(response, Linear)
    # 10,000 squares of a normal distribution: a deviation of 1.4%
    assert np.square(error).mean() / np.square(e).mean() == pytest.approx(
        response.amplification, rel=0.06
    )
