from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import UINT8
from onnxq.operator import Call, Case, NodePlan, Precision
from onnxq.operators.hard_sigmoid import HardSigmoid
from onnxq.qparams import QParams, per_tensor
from tests.operators import builder

OP = HardSigmoid()
X = np.arange(256, dtype=np.uint8)
CASE = Case("", (X.astype(np.float32),), (), {"alpha": 0.5})
P = per_tensor(0.03125, 100, UINT8)


@pytest.mark.parametrize(
    ("out", "nodes"),
    [
        (per_tensor(1 / 256, 0, UINT8), ["QLinearAdd"]),
        (per_tensor(1 / 128, 3, UINT8), ["QLinearAdd", "Clip"]),
    ],
)
def test_clip_is_written_where_saturation_does_not_do_it(out: QParams, nodes: list[str]) -> None:
    plan = NodePlan((P,), (out,))
    model = builder.lowered_model(OP, CASE, plan, [X])
    assert [node.op_type for node in model.graph] == nodes
    wanted = quantize(np.clip(dequantize(X, P) * np.float32(0.5) + np.float32(0.5), 0, 1), out)
    assert np.array_equal(
        OP.kernel(Call(OP.op_type, [X], plan, attributes={"alpha": 0.5}))[0], wanted
    )


def test_a_falling_line_has_no_integer_form() -> None:
    case = Case("", CASE.inputs, (), {"alpha": -0.5})
    assert builder.rule_of(OP, case).precision is Precision.FLOAT_BETWEEN_QDQ


def test_results_lie_between_zero_and_one() -> None:
    assert builder.rule_of(OP, CASE).output_range == (0.0, 1.0)


def test_a_slope_too_small_for_a_scale_goes_around_float() -> None:
    case = Case("", CASE.inputs, (), {"alpha": 1e-38})
    plan = NodePlan((P,), (per_tensor(1 / 256, 0, UINT8),))
    model = builder.lowered_model(OP, case, plan, [X])
    assert "HardSigmoid" in [node.op_type for node in model.graph]
    assert np.unique(
        OP.kernel(Call(OP.op_type, [X], plan, attributes={"alpha": 1e-38}))[0]
    ).tolist() == [128]


def test_a_range_that_int32_does_not_hold_goes_around_float() -> None:
    """x86 would make the least integer of a sum beyond int32, where the result is 1."""
    wide, out = per_tensor(1e7, 100, UINT8), per_tensor(1 / 255, 0, UINT8)
    plan = NodePlan((wide,), (out,))
    model = builder.lowered_model(OP, CASE, plan, [X])
    assert "HardSigmoid" in [node.op_type for node in model.graph]
    (y,) = OP.kernel(Call(OP.op_type, [X], plan, attributes={"alpha": 0.5}))
    assert y[[0, 99, 100, 101, 255]].tolist() == [0, 0, 127, 255, 255]  # 127.5, in float32
