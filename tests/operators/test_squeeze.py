from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.squeeze import Squeeze
from tests.operators.builder import Codes, codes, copied

OP = Squeeze()


def test_only_axes_of_size_one_go() -> None:
    assert copied(OP, codes(1, 3, 1))[0].shape == (3,)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(2, 3), np.array([0])), {}), ((codes(1, 3), np.array([2])), {})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
