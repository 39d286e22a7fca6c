from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxq import catalog
from onnxq.dtypes import UINT8
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import (
    AttributeValue,
    Call,
    Case,
    Float,
    IntegerCall,
    NodeCall,
    NodePlan,
    OpCategory,
    Precision,
)
from onnxq.operator.examples import integers, ints
from onnxq.operators._resample import ROUNDINGS, TRANSFORMATIONS, Axis
from onnxq.operators.resize import Resize, antialiased_integers, linear_integers
from onnxq.qparams import per_tensor
from tests.operators import builder
from tests.operators.builder import SHARED, copied

OP = Resize()
X = np.zeros((1, 1, 2, 2), np.float32)
SCALES = np.array([1, 1, 2, 2], np.float32)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation_is_computed_in_float_with_qparams_of_its_own(mode: str) -> None:
    rule = builder.rule_of(OP, Case("", (X, None, SCALES), (2,), {"mode": mode}))
    assert rule.category is OpCategory.ELEMENTWISE
    assert rule.precision is Precision.FLOAT_BETWEEN_QDQ
    assert not rule.shares_qparams


def test_equal_qparams_do_not_make_onnx_runtime_interpolate_integers(tmp_path: Any) -> None:
    case = Case("", (X, None, SCALES), (2,), {"mode": "linear"})
    plan = NodePlan((SHARED, None, None), (SHARED,))
    model = builder.qdq_model(OP, case, plan, builder.integers_of(case, plan))
    found = builder.optimized_ops(model, tmp_path)
    assert found == ["DequantizeLinear", "QuantizeLinear", "Resize"]


def test_cropping_stays_float() -> None:
    roi = np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize"}
    rule = builder.rule(OP, Case("", (X, roi, SCALES), (1, 2), attributes))
    assert isinstance(rule, Float)


def test_nearest_copies_integers() -> None:
    rule = builder.rule_of(OP, Case("", (X, None, SCALES), (2,)))
    assert rule.category is OpCategory.MOVEMENT
    assert rule.is_fused


@pytest.mark.parametrize(("transformation", "rounding"), list(product(TRANSFORMATIONS, ROUNDINGS)))
def test_nearest_is_that_of_onnx_runtime_in_every_mode(transformation: str, rounding: str) -> None:
    x = integers(2, 29, 12)
    attributes: dict[str, AttributeValue] = {
        "coordinate_transformation_mode": transformation,
        "nearest_mode": rounding,
    }
    plan = NodePlan((SHARED, None, None, None), (SHARED,))
    for sizes in (ints(2, 31, 6), ints(1, 5, 36), ints(3, 30, 11)):
        inputs = [x, None, None, sizes]
        case = Case("", (x.astype(np.float32), None, None, sizes), (3,), attributes)
        (wanted,) = builder.run(builder.lowered_model(OP, case, plan, inputs), case, inputs)
        assert np.array_equal(
            OP.kernel(Call(OP.op_type, inputs, plan, attributes=attributes))[0], wanted
        )


MODES = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["linear", "cubic"]),
        "coordinate_transformation_mode": st.sampled_from(sorted(TRANSFORMATIONS)),
        "antialias": st.integers(0, 1),
    }
)


@given(
    attributes=MODES,
    height=st.sampled_from([0.3, 0.6, 1.0, 1.7, 2.0]),
    width=st.sampled_from([0.4, 0.5, 1.0, 2.3, 3.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_interpolation_equals_onnx_runtime(
    attributes: dict[str, Any], height: float, width: float, seed: int
) -> None:
    x = integers(2, 3, 7, 6, seed=seed)
    scales = np.array([1, 1, height, width], np.float32)
    plan = NodePlan((per_tensor(0.05, 99, UINT8), None, None), (per_tensor(0.02, 70, UINT8),))
    case = Case("", (x.astype(np.float32), None, scales), (2,), attributes)
    inputs = [x, None, scales]
    (wanted,) = builder.run(builder.lowered_model(OP, case, plan, inputs), case, inputs)
    (y,) = OP.kernel(Call(OP.op_type, inputs, plan, attributes=attributes))
    steps = np.abs(y.astype(np.int64) - wanted.astype(np.int64))
    assert steps.max(initial=0) <= 1  # where float32 contracts to fused multiply-adds; else 0
    assert np.count_nonzero(steps) <= 1


@given(
    attributes=MODES.filter(lambda found: found["mode"] == "linear"),
    scales=st.sampled_from([(1, 1, 1.7, 0.6), (1, 1.7, 0.6, 1), (1, 2.0, 2.3, 1), (1, 1, 1, 3)]),
    dtype=st.sampled_from(["uint8", "int8"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_interpolation_of_plain_integers_is_that_of_onnx_runtime(
    attributes: dict[str, Any], scales: tuple[float, ...], dtype: str, seed: int
) -> None:
    inputs = (integers(2, 5, 7, 6, dtype=dtype, seed=seed), None, np.array(scales, np.float32))
    if attributes["antialias"] and dtype == "int8":
        return  # refused; see below
    (wanted,) = run_on_integers(Case("", inputs, (2,), attributes))
    assert np.array_equal(on_integers(inputs, attributes), wanted)


def run_on_integers(case: Case) -> list[Any]:
    return builder.run(builder.float_model(OP, case), case, case.inputs)


def on_integers(inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    operator = catalog.find_integer("Resize")
    assert operator is not None
    (y,) = operator.kernel(IntegerCall(operator.op_type, inputs, attributes=attributes))
    return y


def test_interpolated_integers_are_truncated_and_not_rounded() -> None:
    x = np.array([[0, 3]], np.uint8)
    scales = np.array([1, 2], np.float32)
    assert on_integers((x, None, scales), {"mode": "linear"}).tolist() == [[0, 0, 2, 3]]


def test_nearest_of_plain_integers_is_copied() -> None:
    y = on_integers((integers(1, 3), None, np.array([1, 2], np.float32)), {})
    assert np.array_equal(y, integers(1, 3).repeat(2, axis=1))


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
def test_cubic_of_integers_with_channels_last_is_the_filter_of_antialiasing(mode: str) -> None:
    attributes = {"mode": "cubic", "coordinate_transformation_mode": mode}
    inputs = (integers(2, 6, 5, 4), None, np.array([1, 1.5, 2, 1], np.float32))
    case = Case(mode, inputs, (2,), attributes)
    (wanted,) = builder.run(builder.float_model(OP, case), case, inputs)
    assert np.array_equal(on_integers(inputs, attributes), wanted)


@pytest.mark.parametrize(
    ("dtype", "attributes", "words"),
    [
        ("uint8", {"mode": "cubic"}, "fails at run time"),
        ("int8", {"mode": "linear", "antialias": 1}, "clips them to"),
        ("int32", {"mode": "linear"}, "for 8 bits"),
    ],
)
def test_what_onnx_runtime_gets_wrong_on_integers_is_refused(
    dtype: str, attributes: dict[str, Any], words: str
) -> None:
    x = integers(4, 5).astype(dtype)
    with pytest.raises(UnsupportedError, match=words):
        on_integers((x, None, np.array([2, 2], np.float32)), attributes)


@pytest.mark.parametrize(
    ("inputs", "attributes", "words"),
    [
        ((None, None), {}, "one of the two"),
        ((SCALES, ints(1, 1, 4, 4)), {}, "one of the two"),
        ((SCALES[:2], None), {}, "one entry per axis"),
        ((SCALES[:2], None), {"axes": [2, 4]}, "one entry per axis"),
        ((-SCALES, None), {}, "positive"),
        ((SCALES, None), {"mode": "lanczos"}, "mode is 'lanczos'"),
        ((SCALES, None), {"nearest_mode": "up"}, "nearest_mode is 'up'"),
        ((SCALES, None), {"coordinate_transformation_mode": "up"}, "mode is 'up'"),
        ((None, ints(1, 1, 4, 4)), {"keep_aspect_ratio_policy": "x"}, "policy is 'x'"),
    ],
)
def test_kernel_refuses_what_does_not_fit(
    inputs: tuple[Any, Any], attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        copied(OP, integers(1, 1, 2, 2), None, *inputs, **attributes)


@pytest.mark.parametrize(
    ("shape", "scales"), [((5,), [2.0]), ((2, 3, 4, 4), [1, 2, 2, 2]), ((1,) * 6, [1] * 5 + [2])]
)
def test_ranks_that_onnx_runtime_does_not_interpolate_are_refused(
    shape: tuple[int, ...], scales: list[float]
) -> None:
    with pytest.raises(UnsupportedError, match="spatial axes"):
        copied(OP, integers(*shape), None, np.array(scales, np.float32), mode="linear")


DOUBLED = Axis(2, 4, np.float32(2))


def test_truncation_is_toward_0() -> None:
    x = np.array([[-3, 0]], np.int8)
    assert linear_integers(NodeCall("Op", ()), x, {1: DOUBLED}).tolist() == [[-3, -2, 0, 0]]


def test_channels_last_count_in_steps_of_1024() -> None:
    x = np.array([-3, 0], np.int8).reshape(1, 1, 2, 1)
    axes = {1: Axis(1, 1, np.float32(1)), 2: DOUBLED}
    assert linear_integers(NodeCall("Op", ()), x, axes).ravel().tolist() == [-3, -2, 0, 0]


def test_the_filter_rounds() -> None:
    x = np.array([[1, 2]], np.uint8)
    halved = Axis(2, 1, np.float32(0.5))
    assert antialiased_integers(NodeCall("Op", ()), x, {1: halved}, "linear").tolist() == [[2]]


def test_int8_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedError, match="as if they were uint8"):
        antialiased_integers(NodeCall("Op", ()), np.zeros((1, 2), np.int8), {1: DOUBLED}, "linear")
