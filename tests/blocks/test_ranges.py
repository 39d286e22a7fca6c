"""Ranges of blocks with the least error, against a search of everything."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.blocks.block_spec import BlockSpec
from onnxq.blocks.ranges import rounded, search_ranges
from tests.blocks.block_models import weight

SHORT_OF_BEST = 1.06
"""The search is coarse: an error may be this much above the least of 400 scales by all points."""


def least(row: np.ndarray, spec: BlockSpec) -> float:
    """The least error of one block, over fine scales and all zero points."""
    reach = np.abs(row).max()
    best = np.inf
    for scale in np.linspace(0.02, 2.2, 400) * reach / spec.most:
        for point in [spec.middle] if spec.symmetric else range(spec.most + 1):
            q = np.clip(np.rint(row / scale) + point, 0, spec.most)
            best = min(best, float(np.square((q - point) * scale - row).sum()))
    return best


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 4])
def test_the_error_is_near_the_least_of_all(bits: int, symmetric: bool) -> None:
    spec = BlockSpec(bits, 16, symmetric)
    w = weight(12, 16)
    found = rounded(w, spec, *search_ranges(w, spec))
    error = float(np.square(found.reals - w, dtype=np.float64).sum())
    assert error <= SHORT_OF_BEST * sum(least(row.astype(np.float64), spec) for row in w)


def test_the_lowest_code_is_used() -> None:
    w = np.full((1, 16), -1, np.float32)
    w[0, 0] = 0.8
    found = rounded(w, BlockSpec(4, 16, symmetric=True), *search_ranges(w, BlockSpec(4, 16, True)))
    assert found.codes.min() == 0  # -8


def test_zeros_stay_zeros() -> None:
    w = np.zeros((2, 40), np.float32)
    found = rounded(w, BlockSpec(), *search_ranges(w, BlockSpec()))
    assert not found.reals.any()
    assert (found.scale > 0).all()


def test_important_inputs_are_nearer() -> None:
    w, spec = weight(64, 32), BlockSpec(2, 32)
    importance = np.ones(32, np.float32)
    importance[:4] = 100
    plain, heeded = (rounded(w, spec, *search_ranges(w, spec, p)) for p in (None, importance))
    before, after = (np.square(c.reals - w)[:, :4].sum() for c in (plain, heeded))
    assert after < before / 2
