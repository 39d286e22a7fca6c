from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError
from onnxq.operator import Case, Float, NodePlan
from onnxq.operators.average_pool import AveragePool
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import Codes, codes, copied

OP = AveragePool()


def test_dilations_stay_float() -> None:
    x = np.zeros((1, 1, 9), np.float32)
    case = Case("", (x,), attributes={"kernel_shape": [3], "dilations": [2]})
    assert isinstance(builder.rule(OP, case), Float)


def test_what_the_integer_kernel_counts_differently_stays_float() -> None:
    x = np.zeros((1, 1, 6), np.float32)
    attributes: dict[str, Any] = {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}
    assert not isinstance(builder.rule(OP, Case("", (x,), attributes=attributes)), Float)
    rule = builder.rule(OP, Case("", (x,), attributes={**attributes, "count_include_pad": 1}))
    assert isinstance(rule, Float)
    assert "ceil_mode" in rule.reason


def test_padding_counts_only_when_asked() -> None:
    x = np.full((1, 1, 2), 107, np.uint8)
    (without,) = copied(OP, x, kernel_shape=[2], pads=[1, 0])
    (counted,) = copied(OP, x, kernel_shape=[2], pads=[1, 0], count_include_pad=1)
    assert without.tolist() == [[[107, 107]]]
    assert counted.tolist() == [[[57, 107]]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(1, 1, 2),), {"kernel_shape": [3]}),
        ((codes(1, 4),), {"kernel_shape": [2]}),
        ((codes(1, 1, 4),), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)


def test_one_window_over_all_is_rounded_as_a_global_mean_is() -> None:
    scale = per_tensor(0.020775916054844856, 129, UINT8)
    plan = NodePlan((scale,), (scale,))
    (y,) = OP.kernel([np.array([[[130, 69]]], np.uint8)], plan, {"kernel_shape": [2]})
    assert y.tolist() == [[[99]]]  # ONNX Runtime's; adding the zero point first gives 100
