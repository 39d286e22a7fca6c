from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Case, Float
from onnxq.operators.where import Where
from tests.operators import builder
from tests.operators.builder import Codes, codes, copied, u8

OP = Where()


MASK = np.array([[True, False]])


def test_the_condition_selects() -> None:
    assert copied(OP, MASK, u8([[1, 2]]), u8([[3, 4]]))[0].tolist() == [[1, 4]]


def test_masks_stay_float() -> None:
    x = np.zeros((1, 2), np.float32)
    rule = builder.rule(OP, Case("", (MASK, x, np.array(-1e9, np.float32)), (2,)))
    assert isinstance(rule, Float)
    assert "infinity" in rule.reason


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((MASK, codes(3, 2), codes(2, 3)), {}), ((np.array([1, 0]), codes(2), codes(2)), {})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
