from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operators.tile import Tile
from tests.operators.builder import Codes, codes, copied

OP = Tile()


def test_copies_stand_side_by_side() -> None:
    assert copied(OP, codes(1, 2), [1, 2])[0].tolist() == [[0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(3, 2), np.array([2])), {}), ((codes(3, 2),), {})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
