from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case
from onnxq.operators.gather import Gather
from tests.operators import builder
from tests.operators.builder import Codes, codes, copied

OP = Gather()


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), -1e9, 1e6])
def test_constants_that_stand_for_infinity_stay_float(value: float) -> None:
    mask = np.array([[0, value], [0, 0]], np.float32)
    assert builder.is_float(OP, Case("", (mask, np.array([0, 1])), (0,)))


def test_negative_indices_count_from_the_end() -> None:
    assert copied(OP, codes(3, 1), np.array([-1]))[0].tolist() == [[2]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(3, 2), np.array([3])), {}),
        ((codes(3, 2), np.array([0])), {"axis": 2}),
        ((codes(3, 2),), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
