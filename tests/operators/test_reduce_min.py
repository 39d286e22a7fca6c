from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.reduce_min import ReduceMin
from tests.operators.builder import Codes, codes, copied

OP = ReduceMin()


def test_axes_are_an_input_or_an_attribute() -> None:
    x = np.array([[0, 1]], np.uint8)
    assert copied(OP, x, np.array([1]))[0].tolist() == [[0]]
    assert copied(OP, x, axes=[1], keepdims=0)[0].tolist() == [0]


def test_no_axes_reduce_all_or_nothing() -> None:
    x = np.array([[0, 1]], np.uint8)
    assert copied(OP, x)[0].tolist() == [[0]]
    assert copied(OP, x, noop_with_empty_axes=1)[0].tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(3, 2), np.array([2])), {}), ((codes(0, 2), np.array([0])), {})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
