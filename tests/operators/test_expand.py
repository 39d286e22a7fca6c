from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.expand import Expand
from tests.operators.builder import Codes, codes, copied

OP = Expand()


def test_a_one_in_the_shape_keeps_the_input() -> None:
    assert copied(OP, codes(3, 4), [1, 1])[0].shape == (3, 4)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(3, 2), np.array([3, 4])), {}), ((codes(3, 2),), {})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
