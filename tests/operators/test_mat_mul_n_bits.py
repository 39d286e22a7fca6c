from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import AttributeValue, Case, IntegerCall
from onnxq.operator.examples import integers, normal
from onnxq.operators.mat_mul_n_bits import MatMulNBits
from tests.operators import builder
from tests.operators.test_integer_contract import assert_equals_onnx_runtime

SIZES: dict[str, AttributeValue] = {"K": 300, "N": 5, "bits": 4, "block_size": 32}
A, B = normal(2, 300), integers(5, 10, 16)
SCALES = np.abs(normal(50)) + np.float32(0.1)


def test_low_bits_come_first() -> None:
    b = np.zeros((1, 1, 8), np.uint8)
    b[0, 0, 0] = 0xA8  # integers 8, the default zero point, and 10
    a = np.eye(2, 16, dtype=np.float32)
    sizes = {"K": 16, "N": 1, "bits": 4, "block_size": 16}
    (y,) = MatMulNBits().kernel(
        IntegerCall("MatMulNBits", (a, b, np.ones(1, np.float32)), attributes=sizes)
    )
    assert y.ravel().tolist() == [0, 2]


@pytest.mark.parametrize("level", [0, 4])
def test_float16_is_within_its_bound(level: int) -> None:
    half = (A.astype(np.float16), B, SCALES.astype(np.float16))
    case = Case("half", half, (1, 2), {**SIZES, "accuracy_level": level})
    assert_equals_onnx_runtime(MatMulNBits(), builder.MICROSOFT, case)


def test_level_4_differs_from_float_by_much_more_than_its_bound() -> None:
    inputs, whole = (A, B, SCALES), {**SIZES, "accuracy_level": 4}
    (exact,), (coarse,) = (
        MatMulNBits().kernel(IntegerCall("MatMulNBits", inputs, attributes=SIZES)),
        MatMulNBits().kernel(IntegerCall("MatMulNBits", inputs, attributes=whole)),
    )
    bound = MatMulNBits().bound(IntegerCall("MatMulNBits", inputs, attributes=whole))
    assert bound is not None
    difference = np.abs(exact.astype(np.float64) - coarse.astype(np.float64))
    assert (difference > 10 * bound.astype(np.float64)).any()


def test_the_bound_says_something() -> None:
    bound = MatMulNBits().bound(IntegerCall("MatMulNBits", (A, B, SCALES), attributes=SIZES))
    (y,) = MatMulNBits().kernel(IntegerCall("MatMulNBits", (A, B, SCALES), attributes=SIZES))
    assert bound is not None
    assert bound.shape == y.shape
    assert (bound < 1e-4 * np.abs(y).max()).all()


def test_a_block_of_zeros_stays_zeros() -> None:
    (y,) = MatMulNBits().kernel(
        IntegerCall("MatMulNBits", (A * 0, B, SCALES), attributes={**SIZES, "accuracy_level": 4})
    )
    assert not y.any()


@pytest.mark.parametrize(
    ("changes", "attributes", "message"),
    [
        ({}, {"bits": 3}, "bits 3"),
        ({}, {"block_size": 48}, "block_size 48"),
        ({0: A[:, 1:]}, {}, r"A is float32 of shape \(2, 299\)"),
        ({1: B[1:]}, {}, r"wanted uint8, \(5, 10, 16\)"),
        ({2: SCALES[1:]}, {}, r"scales have shape \(49,\)"),
        ({2: SCALES.astype(np.float16)}, {}, "scales has dtype float16, A float32"),
        ({3: np.zeros(24, np.uint8)}, {}, "5 rows of 5 bytes"),
        ({5: normal(4)}, {}, r"bias of shape \(4,\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    changes: dict[int, np.ndarray], attributes: dict[str, int], message: str
) -> None:
    inputs: list[np.ndarray | None] = [A, B, SCALES, None, None, None]
    for slot, x in changes.items():
        inputs[slot] = x
    with pytest.raises(ShapeError, match=f"MatMulNBits: .*{message}"):
        MatMulNBits().kernel(IntegerCall("MatMulNBits", inputs, attributes={**SIZES, **attributes}))


def test_what_onnx_runtime_lacks_is_refused() -> None:
    groups = np.zeros(300, np.int32)
    with pytest.raises(UnsupportedError, match="g_idx"):
        MatMulNBits().kernel(
            IntegerCall("MatMulNBits", (A, B, SCALES, None, groups), attributes=SIZES)
        )
    wide = (A, integers(5, 10, 32), SCALES, normal(50))
    with pytest.raises(UnsupportedError, match="float32 with 8 bits"):
        MatMulNBits().kernel(IntegerCall("MatMulNBits", wide, attributes={**SIZES, "bits": 8}))


def test_weights_near_0_are_bound_by_their_integers() -> None:
    # an integer equal to its zero point: ONNX Runtime subtracts two sums, which leaves rounding
    # errors
    b, points = np.full_like(B, 0x77), np.full(25, 0x77, np.uint8)
    inputs = (A, b, SCALES, points)
    case = Case("near 0", inputs, (1, 2, 3), {**SIZES, "accuracy_level": 4})
    assert_equals_onnx_runtime(MatMulNBits(), builder.MICROSOFT, case)


@pytest.mark.parametrize("level", [0, 4])
def test_scales_whose_products_are_below_the_normal_numbers_are_within_the_bound(
    level: int,
) -> None:
    scales = np.full_like(SCALES, np.finfo(np.float32).tiny)  # of weights that are all zero
    points = np.full(25, 0x77, np.uint8)
    for rows in (A[:1], A, A * 1e-4):
        inputs = (rows.astype(np.float32), B, scales, points)
        case = Case("tiny scales", inputs, (1, 2, 3), {**SIZES, "accuracy_level": level})
        assert_equals_onnx_runtime(MatMulNBits(), builder.MICROSOFT, case)


def test_a_row_whose_scale_overflows_is_within_its_bound_where_the_last_group_is_filled_up() -> (
    None
):
    a = np.array([[2.2622506e-37], [1.0]], np.float32)
    b, scale = np.zeros((4, 1, 16), np.uint8), np.array([0.1, 0.01, 0.03, 1.0], np.float32)
    points = np.array([15, 15, 15, 0], np.uint8)
    sizes: dict[str, AttributeValue] = {"K": 1, "N": 4, "bits": 4, "block_size": 32}
    case = Case("tiny", (a, b, scale, points), (1, 2, 3), {**sizes, "accuracy_level": 4})
    assert_equals_onnx_runtime(MatMulNBits(), builder.MICROSOFT, case)
