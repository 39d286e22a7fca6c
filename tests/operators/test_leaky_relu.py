from __future__ import annotations

import pytest

from onnxq.dtypes import INT16
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, NodePlan
from onnxq.operators.leaky_relu import LeakyRelu
from onnxq.qparams import per_tensor
from tests.operators.builder import copied, i16, u8

OP = LeakyRelu()


def test_slope_applies_below_zero_only() -> None:
    assert copied(OP, u8([1, 7, 9]), alpha=0.5)[0].tolist() == [4, 7, 9]


def test_sixteen_bits_are_refused() -> None:
    wide = per_tensor(1.0, 0, INT16)
    with pytest.raises(UnsupportedError, match="8 bits"):
        OP.kernel(Call(OP.op_type, [i16([1])], NodePlan((wide,), (wide,))))
