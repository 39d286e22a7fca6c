from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import IntegerCall
from onnxq.operator.examples import integers
from onnxq.operators.max_pool import MaxPool
from onnxq.operators.nhwc_max_pool import NhwcMaxPool
from tests.operators.builder import copied

ATTRIBUTES: dict[str, Any] = {"kernel_shape": [2, 3], "pads": [1, 0, 1, 2], "strides": [1, 2]}


def test_it_is_max_pool_transposed() -> None:
    x = integers(2, 3, 5, 6)
    (first,) = copied(MaxPool(), x, results=1, **ATTRIBUTES)
    (last,) = NhwcMaxPool().kernel(
        IntegerCall("NhwcMaxPool", (np.moveaxis(x, 1, -1),), attributes=ATTRIBUTES)
    )
    assert np.array_equal(np.moveaxis(last, -1, 1), first)


def test_int8_padding_never_wins() -> None:
    x = np.full((1, 1, 1), -128, np.int8)
    (y,) = NhwcMaxPool().kernel(
        IntegerCall("NhwcMaxPool", (x,), attributes={"kernel_shape": [3], "pads": [1, 1]})
    )
    assert y.tolist() == [[[-128]]]


def test_rank_2_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"NhwcMaxPool: x .3, 4.; wanted"):
        NhwcMaxPool().kernel(
            IntegerCall("NhwcMaxPool", (integers(3, 4),), attributes={"kernel_shape": [2]})
        )
