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


@pytest.mark.parametrize("scale", [0.01, 1e-9, 1e-36])  # the last two leave int32
def test_all_pairs_of_integers_equal_onnx_runtime(scale: float) -> None:
    a, b = np.meshgrid(*[np.arange(256, dtype=np.uint8)] * 2)
    case = Case("pairs", (a.astype(np.float32), b.astype(np.float32)))
    operands = per_tensor(0.013, 3, UINT8), per_tensor(0.031, 200, UINT8)
    plan = NodePlan(operands, (per_tensor(scale, 77, UINT8),))
    (wanted,) = builder.run(builder.lowered_model(OP, case, plan, [a, b]), case, [a, b])
    assert np.array_equal(OP.kernel(Call(OP.op_type, [a, b], plan))[0], wanted)


def test_masks_stay_float() -> None:
    x = np.zeros((2, 2), np.float32)
    case = Case("", (x, np.array(np.inf, np.float32)), (1,))
    assert isinstance(builder.rule(OP, case), Float)


def test_sixteen_bits_are_refused() -> None:
    wide = per_tensor(1.0, 0, INT16)
    with pytest.raises(UnsupportedError, match="8 bits"):
        OP.kernel(Call(OP.op_type, [i16([1]), i16([1])], NodePlan((wide, wide), (wide,))))
