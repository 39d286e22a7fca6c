from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array, AttributeValue, Case, IntegerCall
from onnxq.operator.examples import integers, normal, scales, zero
from onnxq.operators.mat_mul_integer_to_float import MatMulIntegerToFloat
from onnxq.operators.q_attention import QAttention
from onnxq.targets.accumulation import Accumulator, SaturationMode
from tests.operators import builder
from tests.operators.test_integer_contract import assert_equals_onnx_runtime

OPERATOR = QAttention()
CASES = {case.name: case for case in OPERATOR.cases()}
LOWEST = float(np.finfo(np.float32).min)


def bound_of(case: Case) -> npt.NDArray[np.float64]:
    found = OPERATOR.bound(
        IntegerCall(OPERATOR.op_type, case.inputs, attributes=case.attributes or {})
    )
    assert found is not None
    return np.asarray(found, np.float64)


def changed(slot: int, x: Array | None, name: str = "per column") -> list[Array | None]:
    inputs = list(CASES[name].inputs)
    inputs[slot] = x
    return inputs


def test_present_is_the_product_of_integers_to_the_bit() -> None:
    case = CASES["per column"]
    x, w, bias, x_scale, w_scale, _, x_zp, w_zp = case.inputs
    (wanted,) = MatMulIntegerToFloat().kernel(
        IntegerCall("MatMulIntegerToFloat", [x, w, x_scale, w_scale, x_zp, w_zp, bias])
    )
    _, present = OPERATOR.kernel(
        IntegerCall(OPERATOR.op_type, case.inputs, attributes=case.attributes or {})
    )
    keys_and_values = np.moveaxis(wanted[..., 6:].reshape(2, 4, 2, 2, 3), 2, 0).swapaxes(2, 3)
    assert np.array_equal(present, keys_and_values)


@pytest.mark.parametrize(("length", "size", "heads"), [(1, 64, 1), (33, 64, 4), (128, 96, 2)])
def test_larger_ones_are_within_a_bound_that_says_something(
    length: int, size: int, heads: int
) -> None:
    rng = np.random.default_rng(length)
    x, w = integers(2, length, size), integers(size, 3 * size, dtype="int8", seed=1)
    column = (rng.uniform(0.5, 1, 3 * size) / (127 * np.sqrt(size))).astype(np.float32)
    inputs = (x, w, normal(3 * size), scales(0.02), column, None, zero(120), None)
    case = Case("larger", inputs, (1, 2, 3, 4), {"num_heads": heads}, 2)
    assert_equals_onnx_runtime(OPERATOR, builder.MICROSOFT, case)
    y, _ = OPERATOR.kernel(IntegerCall(OPERATOR.op_type, inputs, attributes={"num_heads": heads}))
    assert bound_of(case).shape == y.shape
    assert (bound_of(case) < 1e-4 * np.abs(y).max()).all()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ends", "per column"),
        ("ends and starts", "ends"),
        ("mask of keys", "per column"),
        ("one-sided", "per column"),
        ("mask of rows and keys", "mask of keys"),
        ("scale", "per column"),
    ],
)
def test_what_a_case_is_named_for_is_far_beyond_its_bound(name: str, other: str) -> None:
    """A kernel that left a mask out would not pass as rounding."""
    y, without = (
        np.asarray(
            OPERATOR.kernel(
                IntegerCall(OPERATOR.op_type, CASES[n].inputs, attributes=CASES[n].attributes or {})
            )[0],
            np.float64,
        )
        for n in (name, other)
    )
    assert (np.abs(y - without) > 100 * bound_of(CASES[name])).any()


@pytest.mark.parametrize("name", ["mask of two axes, one number each", "mask of one number"])
def test_a_mask_of_one_number_per_row_is_none(name: str) -> None:
    y, plain = (
        OPERATOR.kernel(
            IntegerCall(OPERATOR.op_type, CASES[n].inputs, attributes=CASES[n].attributes or {})
        )[0]
        for n in (name, "per column")
    )
    assert np.array_equal(y, plain)


def test_the_lowest_float_as_filter_leaves_nothing_of_a_score() -> None:
    case = CASES["masked throughout by the lowest"]
    y, present = (
        np.asarray(z, np.float64)
        for z in OPERATOR.kernel(
            IntegerCall(OPERATOR.op_type, case.inputs, attributes=case.attributes or {})
        )
    )
    assert np.abs(y - present[1].mean(axis=2).reshape(2, 1, 6)).max() < 1e-6
    assert (bound_of(case) < 1e-4).all()


@pytest.mark.parametrize("reach", [1e-3, 1.0, 30.0])
def test_scores_of_any_size_are_within_the_bound(reach: float) -> None:
    case = CASES["past, one-sided, mask"]
    inputs = list(case.inputs)
    inputs[2] = np.asarray(normal(18) * np.float32(reach))
    inputs[3] = scales(0.03 * reach)
    case = dataclasses.replace(case, inputs=tuple(inputs))
    assert_equals_onnx_runtime(OPERATOR, builder.MICROSOFT, case)


def test_a_machine_whose_sums_saturate_has_a_bound_of_its_own() -> None:
    case = CASES["per column"]
    inputs = list(case.inputs)
    inputs[0] = np.full((2, 4, 5), 255, np.uint8)
    inputs[1] = np.full((5, 18), 127, np.int8)
    inputs[7] = zero(0, "int8")
    attributes = {"num_heads": 2}
    machine = Accumulator(SaturationMode.SATURATES)
    exact = OPERATOR.bound(IntegerCall(OPERATOR.op_type, inputs, attributes=attributes))
    other = OPERATOR.bound_on(IntegerCall(OPERATOR.op_type, inputs, attributes=attributes), machine)
    assert exact is not None
    assert other is not None
    assert not np.array_equal(exact, other)
    y, _ = OPERATOR.kernel_on(IntegerCall(OPERATOR.op_type, inputs, attributes=attributes), machine)
    assert y.shape == other.shape


@pytest.mark.parametrize(
    ("slot", "x", "message"),
    [
        (0, integers(2, 4, 5, dtype="int8"), "input has dtype int8; wanted uint8"),
        (0, integers(2, 4), r"input of shape \(2, 4\)"),
        (1, integers(5, 20, dtype="int8"), "20 columns for 2 heads"),
        (2, normal(17), r"bias has shape \(17,\); wanted \(18,\)"),
        (4, scales(*[0.1] * 17), "weight_scale has shape"),
        (4, scales(*[0.1] * 18)[None], "wanted one number or"),
        (5, np.ones((2, 4), np.int64), "mask_index has dtype int64"),
        (5, np.ones((1, 4), np.int32), r"mask_index has shape \(1, 4\)"),
        (5, np.array([-1, 2], np.int32), "mask_index has length -1"),
    ],
)
def test_what_onnx_runtime_refuses_is_refused_in_words(slot: int, x: Array, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        OPERATOR.kernel(
            IntegerCall(OPERATOR.op_type, changed(slot, x), attributes={"num_heads": 2})
        )


def test_a_past_of_other_heads_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"past is float32 of shape .*\(2, 2, 2, length, 3\)"):
        OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type,
                [*changed(5, None), normal(2, 2, 3, 3, 2)],
                attributes={"num_heads": 2},
            )
        )


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        ({"num_heads": 2, "past_present_share_buffer": 1}, "past_present_share_buffer"),
    ],
)
def test_what_the_cpu_kernel_ignores_is_refused(
    attributes: dict[str, AttributeValue], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, CASES["plain"].inputs, attributes=attributes))


def test_an_empty_batch_that_onnx_runtime_dies_of_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no batch"):
        OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type, changed(0, integers(0, 4, 5)), attributes={"num_heads": 2}
            )
        )


def test_a_mask_of_four_axes_has_no_cpu_kernel() -> None:
    with pytest.raises(UnsupportedError, match="up to three axes"):
        OPERATOR.kernel(
            IntegerCall(
                OPERATOR.op_type,
                changed(5, np.ones((2, 1, 8, 8), np.int32)),
                attributes={"num_heads": 2},
            )
        )


def test_no_heads_are_refused() -> None:
    with pytest.raises(ShapeError, match="num_heads is 0"):
        OPERATOR.kernel(IntegerCall(OPERATOR.op_type, CASES["plain"].inputs))
