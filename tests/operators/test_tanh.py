from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, UINT8
from onnxq.observers import MinMaxObserver
from onnxq.operator import Call, Case, NodePlan
from onnxq.operators.tanh import OUTPUT_RANGE, Tanh
from onnxq.qparams import QParams, per_tensor
from tests.operators import builder

OP = Tanh()
X = np.arange(256, dtype=np.uint8)
CASE = Case("", (X.astype(np.float32),))


def lowered(q: QParams) -> list[str]:
    p = per_tensor(0.03, 100, UINT8)
    return [n.op_type for n in builder.lowered_model(OP, CASE, NodePlan((p,), (q,)), [X]).graph]


def test_the_range_gives_the_scale_that_the_logistic_function_wants() -> None:
    observer = MinMaxObserver()
    observer.observe(np.array(OUTPUT_RANGE, np.float32), 0)
    assert lowered(observer.calculate_qparams()) == ["QLinearSigmoid"]


@pytest.mark.parametrize(
    "q",
    [
        per_tensor(0.01, 128, UINT8),  # 1 / scale is even, but the zero point below it is negative
        per_tensor(1 / 127, 127, UINT8),  # odd: ties would go to other sides
        per_tensor(1 / 128, 0, INT8),  # another type than the operand's
    ],
)
def test_other_qparams_get_a_table(q: QParams) -> None:
    assert ("GatherElements" in lowered(q)) == (lowered(q) != ["QLinearSigmoid"])


def test_integers_are_those_of_the_rounded_function() -> None:
    q = per_tensor(1 / 128, 128, UINT8)
    for scale in (0.001, 0.0173, 0.03125, 0.4):
        p = per_tensor(scale, 131, UINT8)
        wanted = quantize(np.tanh(dequantize(X, p).astype(np.float64)).astype(np.float32), q)
        assert np.array_equal(OP.kernel(Call(OP.op_type, [X], NodePlan((p,), (q,))))[0], wanted)
