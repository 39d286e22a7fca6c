from __future__ import annotations

import numpy as np

from onnxq.dtypes import INT8, UINT8
from onnxq.operator import Call, NodePlan
from onnxq.operators.neg import Neg
from onnxq.qparams import per_tensor
from tests.operators.builder import copied, u8

OP = Neg()


def test_integers_are_mirrored_at_the_zero_point() -> None:
    assert copied(OP, u8([0, 6, 7, 8]))[0].tolist() == [14, 8, 7, 6]


def test_mirrored_qparams_lose_nothing() -> None:
    for dtype, point, other in ((UINT8, 7, 248), (INT8, -3, 2)):
        plan = NodePlan((per_tensor(0.3, point, dtype),), (per_tensor(0.3, other, dtype),))
        x = np.arange(dtype.qmin, dtype.qmax + 1).astype(dtype.storage)
        assert np.array_equal(OP.kernel(Call(OP.op_type, [x], plan))[0], x[::-1])
