from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.affine import dequantize, quantize
from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.graph.weights import constant
from onnxq.operator import Call, Case, IntegerCall, NodePlan
from onnxq.operators.hard_swish import HardSwish
from onnxq.operators.qlinear_add import QLinearAdd
from onnxq.qparams import QParams, per_tensor
from onnxq.targets.accumulation import Accumulator, SaturationMode
from tests.operators import builder

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.core.arrays import Array

OP = HardSwish()
X = np.arange(256, dtype=np.uint8)
CASE = Case("", (X.astype(np.float32),))


def result(p: QParams, q: QParams) -> Array:
    return OP.kernel(Call(OP.op_type, [X], NodePlan((p,), (q,))))[0]


def exact(p: QParams, q: QParams) -> Array:
    x = dequantize(X, p).astype(np.float64)
    return quantize((x * np.clip(x / 6 + 0.5, 0, 1)).astype(np.float32), q)


def test_two_integer_nodes_are_written() -> None:
    p = per_tensor(0.05, 100, UINT8)
    model = builder.lowered_model(OP, CASE, NodePlan((p,), (p,)), [X])
    assert [node.op_type for node in model.graph] == ["QLinearAdd", "QLinearMul"]


def test_it_is_zero_below_minus_three_and_the_identity_above_three() -> None:
    p, q = per_tensor(0.05, 128, UINT8), per_tensor(0.05, 8, UINT8)
    y = result(p, q)
    assert set(y[: 128 - 60].tolist()) == {8}
    np.testing.assert_array_equal(y[128 + 60 :], X[128 + 60 :] - 120)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_off_by_what_rounding_the_gate_makes_of_three(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = -rng.uniform(0, 8), rng.uniform(0.1, 8)
    p = per_tensor((high - low) / 255, round(-low * 255 / (high - low)), UINT8)
    top, least = high * min(1, high / 6 + 0.5), -0.375
    q = per_tensor((top - least) / 255, round(-least * 255 / (top - least)), UINT8)
    # the gate is rounded by half of 1 / 255, and its scale is raised by 64 * 2^-16 of 1 at most
    bound = (3 * 0.5 / 255 + high * 64 * 2**-16) / float(q.scale) + 1
    assert np.abs(result(p, q).astype(int) - exact(p, q)).max() <= np.ceil(bound)


@pytest.mark.parametrize("kind", [UINT8, INT8], ids=str)
@pytest.mark.parametrize("scale", [0.01, 1 / 32, 0.0625, 0.07, 0.3])
def test_every_machine_gives_the_same_integers(scale: float, kind: QDType) -> None:
    p = per_tensor(scale, kind.qmin + 90, kind)
    integers = np.arange(kind.qmin, kind.qmax + 1).astype(kind.storage)
    model = builder.lowered_model(OP, CASE, NodePlan((p,), (p,)), [integers])
    shift = 0 if kind == UINT8 else 128  # of integers and zero points, as ONNX Runtime stores int8
    for offset, dtype in ((0, kind.storage), (shift, np.dtype(np.uint8))):
        add = [
            x if x.dtype == np.float32 else (x.astype(np.int32) + offset).astype(dtype)
            for x in [integers, *(input_array(model, slot) for slot in range(1, 8))]
        ]
        call = IntegerCall("QLinearAdd", add)
        (wanted,) = QLinearAdd().kernel(call)
        for machine in (SaturationMode.WRAPS, SaturationMode.UNFUSED):
            (got,) = QLinearAdd().kernel_on(call, Accumulator(machine))
            assert np.array_equal(wanted, got)
            known = [np.zeros(0, dtype), *add[1:]]
            assert QLinearAdd().risks(IntegerCall("QLinearAdd", known), machine) is None


def input_array(model: ir.Model, slot: int) -> Array:
    """A constant of the QLinearAdd."""
    (add,) = (node for node in model.graph if node.op_type == "QLinearAdd")
    tensor = constant(add.inputs[slot])
    assert tensor is not None
    return tensor.numpy()


def test_a_scale_without_a_sixth_goes_around_float() -> None:
    p = per_tensor(2.0**-126, 0, UINT8)
    model = builder.lowered_model(OP, CASE, NodePlan((p,), (p,)), [X])
    assert "HardSwish" in [node.op_type for node in model.graph]
