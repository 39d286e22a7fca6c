from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operators.gather_block_quantized import INT4, GatherBlockQuantized

if TYPE_CHECKING:
    from onnxq.operator import AttributeValue

OP = GatherBlockQuantized()
TABLE = np.ones((5, 40), INT4)
IDS = np.array([1, -5])
SCALES = np.full((5, 3), 0.5, np.float32)
SIZES: dict[str, AttributeValue] = {"block_size": 16, "quantize_axis": 1}


def test_two_integers_of_a_byte_are_low_first_around_8() -> None:
    table = np.full((1, 8), 0x9A, np.uint8)
    (got,) = OP.kernel(
        IntegerCall(
            OP.op_type, (table, np.array([0]), np.ones((1, 1), np.float32)), attributes=SIZES
        )
    )
    assert got.tolist() == [[2, 1] * 8]


@pytest.mark.parametrize(
    ("inputs", "attributes", "words"),
    [
        ((TABLE, IDS, SCALES), {"block_size": 24}, "block_size 24"),
        ((TABLE, IDS, SCALES), {"block_size": 8}, "block_size 8"),
        ((TABLE, IDS, SCALES), {"bits": 8}, "bits 8 of int4"),
        ((TABLE, IDS, SCALES), {"gather_axis": 1}, "gather_axis 1"),
        ((TABLE, IDS, SCALES), {"quantize_axis": 0}, "quantize_axis 0"),
        ((TABLE, IDS, SCALES[:, :2]), {}, "scales of shape"),
        ((TABLE, IDS + 4, SCALES), {}, "indices beyond the table's 5 rows"),
        ((TABLE, IDS, SCALES, np.zeros((5, 2), INT4)), {}, "zero_points are int4"),
        ((TABLE[0], IDS, SCALES), {}, "two axes or more"),
    ],
)
def test_kernel_refuses_what_does_not_fit(
    inputs: tuple[np.ndarray, ...], attributes: dict[str, AttributeValue], words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        OP.kernel(IntegerCall(OP.op_type, inputs, attributes={**SIZES, **attributes}))
