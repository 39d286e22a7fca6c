from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.dtypes import UINT8, UINT16
from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, Float, NodePlan, Summed
from onnxq.operator.examples import integers, ints
from onnxq.operators.reduce_mean import ReduceMean, pool_layout
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import copied

OP = ReduceMean()
X = np.zeros((2, 3, 4), np.float32)


@pytest.mark.parametrize(("axes", "lowered"), [((1,), True), ((-1,), True), ((0,), False)])
def test_pools_run_in_integers_and_others_in_float(axes: Any, lowered: bool) -> None:
    assert builder.rule_of(OP, Case("", (X, ints(*axes)), (1,))).lowered is lowered


@pytest.mark.parametrize(
    ("rank", "axes", "layout"),
    [(3, [1], 1), (3, [2], 0), (4, [1, 2], 1), (4, [2, 3], 0), (4, [1], None), (2, [1], None)],
)
def test_the_layout_is_read_off_the_axes(rank: int, axes: list[int], layout: int | None) -> None:
    assert pool_layout(rank, axes) == layout


def test_axes_computed_at_run_time_stay_float() -> None:
    rule = builder.rule(OP, Case("", (X, ints(1))))
    assert isinstance(rule, Float)
    assert "axes" in rule.reason.words


def test_wide_integers_are_averaged_in_float() -> None:
    case = Case("", (X, ints(1)), (1,))
    wide = NodePlan((per_tensor(0.01, 9, UINT16), None), (per_tensor(0.005, 7, UINT16),))
    x = np.arange(24).reshape(X.shape).astype(np.uint16) * 2000
    model = builder.lowered_model(OP, case, wide, [x, ints(1)])
    assert "ReduceMean" in [node.op_type for node in model.graph]
    (wanted,) = builder.run(model, case, [x, None])
    (y,) = OP.kernel(Call(OP.op_type, [x, ints(1)], wide))
    assert (
        np.abs(y.astype(np.int64) - wanted.astype(np.int64)).max() <= 1
    )  # float32 sums in another order


def test_tokens_are_pooled_by_one_integer_node() -> None:
    case = Case("", (X, ints(1)), (1,))
    plan = NodePlan((per_tensor(0.01, 9, UINT8), None), (per_tensor(0.005, 7, UINT8),))
    model = builder.lowered_model(OP, case, plan, [integers(2, 3, 4), ints(1)])
    assert [node.op_type for node in model.graph] == ["QLinearGlobalAveragePool"]


def test_nothing_to_average_is_refused() -> None:
    with pytest.raises(ShapeError, match="no elements"):
        copied(OP, integers(2, 0), ints(1))


def test_axes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="ReduceMean: axes"):
        copied(OP, integers(2, 3), ints(2))


def test_errors_of_all_that_it_adds_come_out() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    (response,) = OP.responses(builder.node_of(OP, Case("", (x, ints(0, 2)), (1,))))
    assert response == Summed(0, 8, 1 / 8)
    (response,) = OP.responses(builder.node_of(OP, Case("", (x, ints(1)))))
    assert response == Summed(0, 1, 1.0)
