from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.operator import NodeCall
from onnxq.operators._resample import Axis
from onnxq.operators._resize_codes import antialiased_codes, linear_codes

DOUBLED = Axis(2, 4, np.float32(2))


def test_truncation_is_toward_0() -> None:
    x = np.array([[-3, 0]], np.int8)
    assert linear_codes(NodeCall("Op", ()), x, {1: DOUBLED}).tolist() == [[-3, -2, 0, 0]]


def test_channels_last_count_in_steps_of_1024() -> None:
    x = np.array([-3, 0], np.int8).reshape(1, 1, 2, 1)
    axes = {1: Axis(1, 1, np.float32(1)), 2: DOUBLED}
    assert linear_codes(NodeCall("Op", ()), x, axes).ravel().tolist() == [-3, -2, 0, 0]


def test_the_filter_rounds() -> None:
    x = np.array([[1, 2]], np.uint8)
    halved = Axis(2, 1, np.float32(0.5))
    assert antialiased_codes(NodeCall("Op", ()), x, {1: halved}, "linear").tolist() == [[2]]


def test_int8_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedError, match="as if they were uint8"):
        antialiased_codes(NodeCall("Op", ()), np.zeros((1, 2), np.int8), {1: DOUBLED}, "linear")
