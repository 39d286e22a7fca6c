from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import INT4, INT8
from onnxq.qdq.write import granularity_attributes
from onnxq.qparams import PerBlock, PerChannel, QParams, per_tensor


@pytest.mark.parametrize(
    ("qparams", "wanted"),
    [
        (per_tensor(1, 0, INT8), {}),
        (QParams(np.ones(3, "f"), np.zeros(3, np.int8), INT8, PerChannel(1)), {"axis": 1}),
        (
            QParams(np.ones((4, 3), "f"), np.zeros((4, 3), np.int8), INT4, PerBlock(0, 16)),
            {"axis": 0, "block_size": 16},
        ),
    ],
    ids=["tensor", "channel", "block"],
)
def test_attributes_are_those_of_the_granularity(qparams: QParams, wanted: dict[str, int]) -> None:
    assert granularity_attributes(qparams) == wanted
