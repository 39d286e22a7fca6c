from __future__ import annotations

import numpy as np
import pytest

from onnxq.affine import dequantize
from onnxq.dtypes import INT8, UINT8, UINT16, QDType
from onnxq.errors import UnsupportedError
from onnxq.operator import Call, Case, Float, Linear, NodePlan
from onnxq.operators.sub import Sub, mirrored
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import integers

OP = Sub()

P, Q = per_tensor(0.013, 3, UINT8), per_tensor(0.031, 200, UINT8)
OUT = per_tensor(0.04, 77, UINT8)


@pytest.mark.parametrize("dtype", [UINT8, INT8])
def test_mirrored_integers_stand_for_the_negative_numbers(dtype: QDType) -> None:
    q = per_tensor(0.3, dtype.qmin + 9, dtype)
    x = np.arange(dtype.qmin, dtype.qmax + 1).astype(dtype.storage)
    assert np.array_equal(dequantize(x[::-1], mirrored(q)), -dequantize(x, q))


def test_all_pairs_of_integers_equal_onnx_runtime() -> None:
    a, b = np.meshgrid(*[np.arange(256, dtype=np.uint8)] * 2)
    case = Case("pairs", (a.astype(np.float32), b.astype(np.float32)))
    for scale in (0.04, 0.026, 0.5):
        plan = NodePlan((P, Q), (per_tensor(scale, 77, UINT8),))
        (wanted,) = builder.run(builder.lowered_model(OP, case, plan, [a, b]), case, [a, b])
        assert np.array_equal(OP.kernel(Call(OP.op_type, [a, b], plan))[0], wanted)


def test_masks_stay_float() -> None:
    x = np.zeros((2, 2), np.float32)
    case = Case("", (x, np.array([0, -np.inf], np.float32)), (1,))
    assert isinstance(builder.rule(OP, case), Float)


def test_mixed_types_are_not_lowered() -> None:
    x = np.zeros(2, np.float32)
    plan = NodePlan((P, per_tensor(0.1, 0, INT8)), (OUT,))
    with pytest.raises(UnsupportedError, match="int8, uint8"):
        builder.lowered_model(OP, Case("", (x, x)), plan, [integers(2), integers(2)])


def test_wide_integers_go_around_float() -> None:
    x, wide = np.zeros(2, np.float32), per_tensor(0.1, 0, UINT16)
    model = builder.lowered_model(OP, Case("", (x, x)), NodePlan((wide, wide), (wide,)), [x, x])
    assert [node.op_type for node in model.graph if node.op_type == "Sub"] == ["Sub"]


@pytest.mark.parametrize(("constant", "offset", "sign"), [(1, -3.0, 1.0), (0, 3.0, -1.0)])
def test_a_number_is_taken_from_what_became_zero(constant: int, offset: float, sign: float) -> None:
    inputs = [np.zeros((2, 4), np.float32)] * 2
    inputs[constant] = np.array(3, np.float32)
    first, second = OP.responses(builder.node_of(OP, Case("", tuple(inputs), (constant,))))
    assert (first, second)[1 - constant] == Linear((1 - constant,), 1.0, offset, sign)
