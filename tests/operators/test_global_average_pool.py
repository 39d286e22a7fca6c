from __future__ import annotations

from typing import Any

import pytest

from onnxq.errors import ShapeError
from onnxq.operators.global_average_pool import GlobalAveragePool
from tests.operators.builder import Codes, codes, copied, u8

OP = GlobalAveragePool()


def test_spatial_axes_stay_with_size_one() -> None:
    (y,) = copied(OP, u8([[[7, 9, 11]]]))
    assert y.tolist() == [[[9]]]


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [((codes(2, 3),), {}), ((codes(2, 3, 0),), {})],
)
def test_kernel_refuses_shapes_that_do_not_fit(
    inputs: tuple[Codes | None, ...], attributes: dict[str, Any]
) -> None:
    with pytest.raises(ShapeError, match=OP.op_type):
        copied(OP, *inputs, **attributes)
