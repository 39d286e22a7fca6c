from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import UnsupportedError
from onnxq.operator import IntegerCall
from onnxq.operators.dynamic_quantize_linear import DynamicQuantizeLinear


def test_zeros_have_scale_1() -> None:
    y, scale, zero_point = DynamicQuantizeLinear().kernel(
        IntegerCall("DynamicQuantizeLinear", (np.zeros(3, np.float32),))
    )
    assert (y.tolist(), scale.item(), zero_point.item()) == ([0, 0, 0], 1.0, 0)


def test_0_is_always_a_integer() -> None:
    y, _, zero_point = DynamicQuantizeLinear().kernel(
        IntegerCall("DynamicQuantizeLinear", (np.array([3, 4, 5], np.float32),))
    )
    assert zero_point == 0
    assert y[-1] == 255


@pytest.mark.parametrize("bad", [[np.inf], [-np.inf, 1], [np.nan], [3e38, -3e38], [1e-45]])
def test_scales_that_overflow_or_vanish_are_refused(bad: list[float]) -> None:
    with pytest.raises(UnsupportedError, match=r"DynamicQuantizeLinear: values from .* the scale"):
        DynamicQuantizeLinear().kernel(
            IntegerCall("DynamicQuantizeLinear", (np.array(bad, np.float32),))
        )
