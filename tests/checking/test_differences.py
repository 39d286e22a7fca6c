from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxq.checking.differences import Differences, Unit


def of(got: object, wanted: np.ndarray, **options: np.ndarray) -> Differences:
    sums = Differences()
    sums.update(got, wanted, **options)
    return sums


def test_integers_differ_in_steps_of_one() -> None:
    sums = of(np.array([0, 255, 7], np.uint8), np.array([255, 255, 8], np.uint8))
    assert (sums.unit, sums.elements, sums.differing, sums.largest) == (Unit.LSB, 3, 2, 255)


def test_counts_add_up_over_batches() -> None:
    sums = Differences()
    for _ in range(3):
        sums.update(np.array([-128], np.int8), np.array([127], np.int8))
    assert (sums.elements, sums.differing, sums.largest) == (3, 3, 255)


def test_floats_differ_in_ulps_of_the_largest_number() -> None:
    one = np.array([1, 0], np.float32)
    beside = np.array([1, 3 * 2.0**-23], np.float32)
    assert of(np.nextafter(one, np.float32(2)), one).largest == 1
    assert of(beside, one).largest == 3
    assert of(one, one).unit == Unit.ULP


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64]
)
def test_every_float_type_is_counted_in_its_own_ulps(dtype: type[np.generic]) -> None:
    ulp = float(np.spacing(dtype(0.5)))
    wanted = np.array([0.5, 0.25, np.nan]).astype(dtype)
    sums = of(np.array([0.5, 0.25 + 2 * ulp, np.nan]).astype(dtype), wanted)
    assert (sums.unit, sums.differing, sums.largest) == (Unit.ULP, 1, 2)


def test_a_difference_below_one_ulp_is_one_step() -> None:
    one = np.array([1, 0], np.float32)
    assert of(np.array([1, 1e-20], np.float32), one).largest == 1


def test_a_number_is_far_from_nan() -> None:
    sums = of(np.array([np.nan, np.inf], np.float32), np.array([0, 0], np.float32))
    assert (sums.differing, sums.largest) == (2, 2**31)


def test_numbers_below_the_least_normal_one_are_alike() -> None:
    wanted = np.array([-1e-41, 0, 1e-41, 0, 0], np.float32)
    got = np.array([0, 1e-41, -1e-41, np.nan, 2e-38], np.float32)
    assert of(got, wanted).differing == 2


def test_both_zeros_and_all_nans_are_equal() -> None:
    x = np.array([0.0, np.nan], np.float32)
    assert of(x, np.array([-0.0, np.nan], np.float32)).differing == 0
    assert of(x, np.array([0, 1], np.float32)).differing == 1


def test_within_the_bound_of_a_kernel_nothing_differs() -> None:
    got, wanted = np.array([1, 2], np.float32), np.array([1.1, 3], np.float32)
    sums = of(got, wanted, bound=np.array([0.5], np.float32))
    assert (sums.unit, sums.differing) == (Unit.ULP_BEYOND_BOUND, 1)
    nothing = of(got, np.array([np.nan, 2], np.float32), bound=np.array([0.5], np.float32))
    assert nothing.differing == 1


def test_dequantized_outputs_differ_in_steps_of_their_scale() -> None:
    sums = Differences(Unit.SCALE, 0.25)
    sums.update(np.array([1.0, 2.0], np.float32), np.array([1.75, 2.0], np.float32))
    assert (sums.differing, sums.largest) == (1, 3)
    sums.update(np.array([np.nan], np.float32), np.array([0], np.float32))
    assert sums.largest == 2**31


def test_texts_are_compared_whatever_their_numpy_type_is() -> None:
    sums = of(np.array(["a", "b"]), np.array(["a", "c"], object))
    assert (sums.elements, sums.differing, sums.largest) == (2, 1, 1)


@pytest.mark.parametrize("got", [np.zeros((1, 2), np.uint8), np.zeros(2, np.int8), [0, 0]], ids=str)
def test_another_shape_dtype_or_kind_is_a_problem(got: object) -> None:
    sums = of(got, np.zeros(2, np.uint8))
    assert "ONNX Runtime uint8 (2,)" in sums.problem
    assert sums.differing == 2
