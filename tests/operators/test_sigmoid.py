from __future__ import annotations

import numpy as np

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import UINT8
from onnxq.operator import Call, Case, NodePlan
from onnxq.operators.sigmoid import Sigmoid
from onnxq.qparams import per_tensor
from tests.operators import builder

OP = Sigmoid()


def test_results_lie_between_zero_and_one() -> None:
    assert builder.rule_of(OP, Case("", (np.zeros(3, np.float32),))).output_range == (0.0, 1.0)


def test_table_holds_the_rounded_function() -> None:
    p, q = per_tensor(0.05, 128, UINT8), per_tensor(1 / 256, 0, UINT8)
    x = np.arange(256, dtype=np.uint8)
    (y,) = OP.kernel(Call(OP.op_type, [x], NodePlan((p,), (q,))))
    exact = 1 / (1 + np.exp(-dequantize(x, p).astype(np.float64)))
    assert np.array_equal(y, quantize(exact.astype(np.float32), q))
