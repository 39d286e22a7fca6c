from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from onnxq.errors import ShapeError
from onnxq.operator import Call, Case, Float, InfiniteOperand
from onnxq.operators.batch_normalization import BatchNormalization
from tests.operators import builder
from tests.operators.builder import Types

OP = BatchNormalization()
CASES = {case.name: case for case in OP.cases()}


def convolution(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weight, its scale, bias) of the lowered form."""
    plan = builder.plan_of(OP, case, Types())
    graph = builder.lowered_model(OP, case, plan, builder.integers_of(case, plan)).graph
    (node,) = graph
    assert node.op_type == "QLinearConv"
    slots = [node.inputs[slot] for slot in (3, 4, 8)]
    weight, scale, bias = (v.const_value.numpy() for v in slots if v and v.const_value)
    return weight, scale, bias


def test_the_weight_has_no_error() -> None:
    case = CASES["plain"]
    weight, scale, _ = convolution(case)
    gamma, var = np.asarray(case.inputs[1]), np.asarray(case.inputs[4])
    slope = gamma / np.sqrt(var + np.float32(1e-5))
    assert weight.shape == (4, 1, 1, 1)
    assert set(np.abs(weight).ravel()) == {127}
    # float32 rounds the slope here, and the scale there: 2^-24 each, and the division by 127
    assert np.allclose(weight.ravel() * scale, slope, rtol=2**-22, atol=0)


def test_a_slope_of_zero_leaves_the_offset() -> None:
    weight, scale, bias = convolution(CASES["slopes of 0"])
    assert weight.ravel()[0] == weight.ravel()[2] == 0
    assert bias[0] == 0
    assert scale[0] == 1  # slope and offset are 0
    assert abs(bias[2]) == pytest.approx(2**30, rel=2**-24)  # the scale is a float32


def test_an_offset_that_would_leave_int32_raises_the_scale() -> None:
    weight, _, bias = convolution(CASES["offsets beyond int32"])
    assert np.abs(bias).max() == pytest.approx(2**30, rel=2**-24)  # scales are float32
    assert np.abs(weight).max() < 127


def test_three_spatial_axes_are_quantized_where_asked_for() -> None:
    rules = {name: builder.rule_of(OP, CASES[name]) for name in ("plain", "1d", "3d")}
    assert all(rule.lowered for rule in rules.values())
    assert [name for name, rule in rules.items() if rule.named_only] == ["3d"]


def test_training_mode_stays_float() -> None:
    case = dataclasses.replace(CASES["plain"], attributes={"training_mode": 1}, outputs=3)
    verdict = builder.rule(OP, case)
    assert isinstance(verdict, Float)
    assert "training" in verdict.reason.words


@pytest.mark.parametrize(("slot", "name"), [(1, "scale"), (2, "B"), (3, "mean"), (4, "var")])
def test_parameters_computed_at_run_time_stay_float(slot: int, name: str) -> None:
    constants = tuple(i for i in (1, 2, 3, 4) if i != slot)
    verdict = builder.rule(OP, dataclasses.replace(CASES["plain"], constants=constants))
    assert isinstance(verdict, Float)
    assert f"its {name} is computed" in verdict.reason.words


def test_matrices_stay_float() -> None:
    case = CASES["plain"]
    x = np.asarray(case.inputs[0])[:, :, 0, 0]
    verdict = builder.rule(OP, dataclasses.replace(case, inputs=(x, *case.inputs[1:])))
    assert isinstance(verdict, Float)
    assert "(2, 4)" in verdict.reason.words


def test_a_variance_below_zero_stays_float_and_marks_its_result() -> None:
    case = CASES["plain"]
    inputs = (*case.inputs[:4], -np.ones(4, np.float32))
    verdict = builder.rule(OP, dataclasses.replace(case, inputs=inputs))
    assert isinstance(verdict, Float)
    assert isinstance(verdict.reason, InfiniteOperand)


def test_kernel_names_parameters_of_another_length() -> None:
    case = CASES["plain"]
    plan = builder.plan_of(OP, case, Types())
    integers = builder.integers_of(case, plan)
    integers[3] = np.zeros(5, np.float32)
    with pytest.raises(ShapeError, match=r"\(5,\)"):
        OP.kernel(Call(OP.op_type, integers, plan))
