"""Ranges of groups with the least error, against a search of everything."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.qparams.group_ranges import rounded, search_ranges, unshrunk
from onnxq.qparams.group_spec import GroupSpec, Scheme
from tests.weights.block_models import weight

SHORT_OF_BEST = 1.06
"""The search is coarse: an error may be this much above the least of 400 scales by all points."""


def least(row: np.ndarray, spec: GroupSpec) -> float:
    """The least error of one group, over fine scales and all zero points."""
    reach = np.abs(row).max()
    best = np.inf
    points = {
        Scheme.AFFINE: np.arange(spec.most + 1),
        Scheme.SYMMETRIC: np.array([spec.middle]),
        Scheme.REAL: np.linspace(-1, spec.most + 1, 100),
    }
    scales = np.linspace(0.02, 2.2, 400) * reach / spec.most
    for scale in np.concatenate([scales, -scales]) if spec.symmetric else scales:
        for point in points[spec.scheme]:
            q = np.clip(np.rint(row / scale) + point, 0, spec.most)
            best = min(best, float(np.square((q - point) * scale - row).sum()))
    return best


@pytest.mark.parametrize("scheme", [*Scheme])
@pytest.mark.parametrize("bits", [2, 4])
def test_the_error_is_near_the_least_of_all(bits: int, scheme: Scheme) -> None:
    spec = GroupSpec(bits, 16, scheme)
    w = weight(4 if scheme is Scheme.REAL else 12, 16)
    found = rounded(w, spec, *search_ranges(w, spec))
    error = float(np.square(found.dequantized - w, dtype=np.float64).sum())
    assert error <= SHORT_OF_BEST * sum(least(row.astype(np.float64), spec) for row in w)


def test_the_lowest_integer_is_used() -> None:
    w = np.full((1, 16), -1, np.float32)
    w[0, 0] = 0.8
    spec = GroupSpec(4, 16, Scheme.SYMMETRIC)
    found = rounded(w, spec, *search_ranges(w, spec))
    assert found.integers.min() == 0  # -8


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_lowest_integer_is_the_largest_weight_of_either_sign(sign: int) -> None:
    w = np.linspace(-0.875, 1, 16, dtype=np.float32)[np.newaxis] * np.float32(sign)
    spec = GroupSpec(4, 16, Scheme.SYMMETRIC)
    made = rounded(w, spec, *search_ranges(w, spec))
    assert made.integers[0, -1] == 0
    assert np.sign(made.scale[0, 0]) == -sign


def test_scales_are_positive_where_they_may_not_be_signed() -> None:
    spec = GroupSpec(4, 16, Scheme.SYMMETRIC, signed=False)
    assert (search_ranges(weight(8, 64), spec)[0] > 0).all()


def test_what_fills_a_block_up_is_no_error_of_real_zero_points() -> None:
    w, spec = weight(8, 20) + np.float32(3), GroupSpec(4, 16, Scheme.REAL)
    short = rounded(w, spec, *search_ranges(w, spec)).dequantized[:, 16:]
    alone = rounded(w[:, 16:], spec, *search_ranges(w[:, 16:], spec)).dequantized
    assert np.array_equal(short, alone)
    assert np.abs(short - w[:, 16:]).max() < 0.2


def test_zeros_stay_zeros() -> None:
    w = np.zeros((2, 40), np.float32)
    found = rounded(w, GroupSpec(), *search_ranges(w, GroupSpec()))
    assert not found.dequantized.any()
    assert (found.scale > 0).all()


def test_important_inputs_are_nearer() -> None:
    w, spec = weight(64, 32), GroupSpec(2, 32)
    importance = np.ones(32, np.float32)
    importance[:4] = 100
    plain, heeded = (rounded(w, spec, *search_ranges(w, spec, p)) for p in (None, importance))
    before, after = (np.square(c.dequantized - w)[:, :4].sum() for c in (plain, heeded))
    assert after < before / 2


@pytest.mark.parametrize("bits", [2, 4])
def test_rounding_makes_no_row_smaller(bits: int) -> None:
    w, spec = weight(16, 96), GroupSpec(bits, 32)
    short = rounded(w, spec, *search_ranges(w, spec))
    made = unshrunk(w, short)
    power = np.square(w).sum(1)
    assert ((w * short.dequantized).sum(1) < power).all()
    np.testing.assert_allclose((w * made.dequantized).sum(1), power, rtol=1e-5)  # float32 scales
    np.testing.assert_array_equal(made.integers, short.integers)


def test_rows_of_zeros_keep_their_scales() -> None:
    w, spec = np.zeros((2, 32), np.float32), GroupSpec()
    short = rounded(w, spec, *search_ranges(w, spec))
    np.testing.assert_array_equal(unshrunk(w, short).scale, short.scale)


def test_scales_of_zeros_are_positive() -> None:
    scale, _ = search_ranges(np.zeros((2, 32), np.float32), GroupSpec(4, 32, Scheme.SYMMETRIC))
    assert (scale > 0).all()
