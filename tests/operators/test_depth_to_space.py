from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import ShapeError
from onnxq.operators.depth_to_space import DepthToSpace
from tests.operators.builder import Codes, codes, copied

OP = DepthToSpace()


def test_modes_order_channels_differently() -> None:
    x = codes(1, 8, 1, 1)
    assert copied(OP, x, blocksize=2)[0][0, 0].tolist() == [[0, 2], [4, 6]]
    assert copied(OP, x, blocksize=2, mode="CRD")[0][0, 0].tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((codes(1, 3, 1, 1),), {"blocksize": 2}),
        ((codes(4, 1, 1),), {"blocksize": 2}),
        ((codes(1, 4, 1, 1),), {}),
    ],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
