from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.gather_elements import GatherElements
from tests.operators.builder import Codes, codes, copied

OP = GatherElements()


def test_indices_may_be_shorter_along_other_axes() -> None:
    assert copied(OP, codes(3, 4), np.array([[2, 0]]))[0].tolist() == [[8, 1]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(3, 2), np.array([0])), {}),
        ((codes(3, 2), np.array([[3, 0]])), {}),
        ((codes(3, 2), np.array([[0, 0]])), {"axis": 2}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
