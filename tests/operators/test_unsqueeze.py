from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.unsqueeze import Unsqueeze
from tests.operators.builder import Codes, codes, copied

OP = Unsqueeze()


def test_axes_count_in_the_result() -> None:
    assert copied(OP, codes(2, 3), [0, 3])[0].shape == (1, 2, 3, 1)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(2, 3), np.array([4])), {}),
        ((codes(2, 3), np.array([0, 0])), {}),
        ((codes(2, 3),), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
