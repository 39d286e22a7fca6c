from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dtypes import UINT8
from onnxq.operator import IntegerCall
from onnxq.operator.examples import scales
from onnxq.operators._linear import linear_qparams, spread
from onnxq.qparams import Granularity, PerBlock, PerChannel, PerTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.operator import Array


@pytest.mark.parametrize(
    ("scale", "attributes", "wanted"),
    [
        (scales(2), {}, PerTensor()),
        (np.ones(1, np.float32), {"axis": 7}, PerTensor()),  # axis is not looked at
        (scales(1, 2, 3, 4, 5), {}, PerChannel(1)),
        (scales(1, 2, 3), {"axis": -2}, PerChannel(0)),
        (np.ones((3, 3), np.float32), {"block_size": 2}, PerBlock(1, 2)),
        (np.ones((1, 5), np.float32), {"axis": -2, "block_size": 8}, PerBlock(0, 8)),
    ],
)
def test_the_shape_of_the_scale_says_what_it_covers(
    scale: Array, attributes: Mapping[str, int], wanted: Granularity
) -> None:
    found = linear_qparams(
        IntegerCall("Op", (), attributes=attributes), "x", scale, None, UINT8, (3, 5)
    )
    assert found.granularity == wanted


def test_spread_repeats_a_number_over_its_block() -> None:
    values = np.array([[1, 2], [3, 4]])
    assert spread(values, PerBlock(1, 2), (2, 3)).tolist() == [[1, 1, 2], [3, 3, 4]]
    assert spread(values[0], PerChannel(0), (2, 3)).shape == (2, 1)
    assert spread(values[0, 0], PerTensor(), (2, 3)).shape == ()
