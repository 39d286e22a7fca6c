from __future__ import annotations

import numpy as np
import pytest

from onnxq.dtypes import INT16, UINT8
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, Case, Float, NodePlan
from onnxq.operators.mul import Mul
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import i16, u8

OP = Mul()


def test_ties_depend_on_the_zero_point() -> None:
    one = per_tensor(1.0, 0, UINT8)
    results = [
        OP.kernel(
            Call(
                OP.op_type,
                [u8([1]), u8([1])],
                NodePlan((one, one), (per_tensor(2.0, zero, UINT8),)),
            )
        )[0].item()
        for zero in (0, 1)
    ]
    assert results == [0, 2]  # rint(0.5 + 0) and rint(0.5 + 1)


def test_masks_stay_float() -> None:
    x = np.zeros((2, 2), np.float32)
    case = Case("", (x, np.array(np.inf, np.float32)), (1,))
    assert isinstance(builder.rule(OP, case), Float)


def test_sixteen_bits_are_refused() -> None:
    wide = per_tensor(1.0, 0, INT16)
    with pytest.raises(UnsupportedError, match="8 bits"):
        OP.kernel(Call(OP.op_type, [i16([1]), i16([1])], NodePlan((wide, wide), (wide,))))
