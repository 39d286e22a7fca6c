from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import quantize
from onnxq.dtypes import UINT8
from onnxq.operator import Call, Case, Float, NodePlan
from onnxq.operators.clip import Clip
from onnxq.qparams import per_tensor
from tests.operators import builder

OP = Clip()


X = np.zeros((2, 2), np.float32)
LOW, HIGH = np.array(0, np.float32), np.array(6, np.float32)
INF = float("inf")


@pytest.mark.parametrize(
    ("case", "bounds"),
    [
        (Case("", (X, LOW, HIGH), (1, 2)), (0.0, 6.0)),
        (Case("", (X, None, HIGH), (2,)), (-INF, 6.0)),
        (Case("", (X, LOW), (1,)), (0.0, INF)),
        (Case("", (X,), attributes={"min": -1.0}, opset=10), (-1.0, INF)),
    ],
)
def test_bounds_are_read_wherever_they_stand(case: Case, bounds: tuple[float, float]) -> None:
    rule = builder.rule_of(OP, case)
    assert rule.clamp is not None
    assert np.allclose(rule.clamp, bounds, rtol=1e-6)


def test_attributes_of_opset_six_default_to_the_float_range() -> None:
    rule = builder.rule_of(OP, Case("", (X,), opset=10))
    assert rule.clamp == (-INF, INF)


def test_bounds_computed_at_run_time_stay_float() -> None:
    rule = builder.rule(OP, Case("", (X, LOW, HIGH), (1,)))
    assert isinstance(rule, Float)
    assert "run time" in rule.reason.words


def test_crossed_bounds_stay_float() -> None:
    assert isinstance(builder.rule(OP, Case("", (X, HIGH, LOW), (1, 2))), Float)


def test_between_two_qparams_the_bounds_are_those_of_reals() -> None:
    p, q = per_tensor(0.25, 128, UINT8), per_tensor(0.01, 0, UINT8)
    x = np.arange(256, dtype=np.uint8).reshape(16, 16)
    call = Call(OP.op_type, [x, LOW, np.array(0.6, np.float32)], NodePlan((p, None, None), (q,)))
    (found,) = OP.kernel(call)
    reals = np.clip((x.astype(np.float32) - 128) * np.float32(0.25), 0, np.float32(0.6))
    np.testing.assert_array_equal(found, quantize(reals, q))
    assert found.max() == 60
