from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import ShapeError
from onnxq.operators.transpose import Transpose
from tests.operators.builder import Codes, codes, copied

OP = Transpose()


def test_axes_are_reversed_without_perm() -> None:
    assert copied(OP, codes(2, 3, 4))[0].shape == (4, 3, 2)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(2, 3),), {"perm": [0, 2]}), ((codes(2, 3),), {"perm": [0]})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
