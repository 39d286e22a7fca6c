from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import ShapeError
from onnxq.operators.flatten import Flatten
from tests.operators.builder import Codes, codes, copied

OP = Flatten()


def test_axis_zero_gives_one_row() -> None:
    assert copied(OP, codes(2, 3, 4), axis=0)[0].shape == (1, 24)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(2, 3),), {"axis": 3}), ((codes(2, 3),), {"axis": -3})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
