from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import CalibrationError
from onnxq.observers._exact_sums import ExactSums

POSITIVE = st.floats(0, float(np.finfo(np.float32).max), width=32)


@given(st.lists(POSITIVE, min_size=1, max_size=9))
def test_sums_are_those_of_exact_arithmetic_in_any_order(numbers: list[float]) -> None:
    there, back = ExactSums(1), ExactSums(1)
    for number in numbers:
        there.add(np.array([number]))
    for number in reversed(numbers):
        back.add(np.array([number]))
    np.testing.assert_array_equal(there.limbs, back.limbs)
    assert there.values[0] == pytest.approx(math.fsum(numbers), rel=1e-15)


def test_merging_is_adding_on() -> None:
    one, other, both = ExactSums(2), ExactSums(2), ExactSums(2)
    for sums in (one, both):
        sums.add(np.array([1e-40, 1e30]))
    for sums in (other, both):
        sums.add(np.array([3.0, 1e-30]))
    np.testing.assert_array_equal(one.merged(other).limbs, both.limbs)
    np.testing.assert_array_equal(one.merged(ExactSums(0)).limbs, one.limbs)


def test_what_float32_cannot_hold_counts_as_its_largest() -> None:
    sums = ExactSums(1)
    sums.add(np.array([1e300]))
    assert sums.values[0] == float(np.finfo(np.float32).max)


def test_limbs_of_another_number_are_refused() -> None:
    with pytest.raises(CalibrationError, match="4 limbs; wanted 9"):
        ExactSums.from_state({"power": np.zeros((3, 4), np.int64)}, "power")
