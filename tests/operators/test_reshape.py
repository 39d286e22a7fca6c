from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.reshape import Reshape
from tests.operators.builder import Codes, codes, copied

OP = Reshape()


def test_zero_keeps_a_size_and_minus_one_is_inferred() -> None:
    assert copied(OP, codes(2, 3, 4), [0, -1])[0].shape == (2, 12)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(2, 3), np.array([4])), {}),
        ((codes(2, 3), np.array([1, 1, 0])), {}),
        ((codes(2, 3), np.array([-1, -1])), {}),
        ((codes(2, 3),), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
