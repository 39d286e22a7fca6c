"""Sums of moments: what the whole rows give at once, batch after batch and stripe after stripe."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.weights import moment_sums
from onnxq.weights.moment_sums import MomentSums
from tests.weights.block_models import moments_of


def test_sums_of_batches_are_the_moments_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moment_sums, "STRIPE", 5)
    seen, wanted = np.random.default_rng(0).normal(size=(2, 40, 12)).astype(np.float32)
    sums = MomentSums("x", 12, has_cross=True)
    for start in range(0, 40, 16):
        sums.add(seen[start : start + 16], wanted[start : start + 16])
    made, whole = sums.moments(), moments_of(seen, wanted)
    assert sums.count == 40
    # float32 products of at most 40 rows, in another order
    np.testing.assert_allclose(made.own, whole.own, atol=1e-6)
    assert np.array_equal(made.own, made.own.T)
    assert made.cross is not None
    assert whole.cross is not None
    np.testing.assert_allclose(made.cross, whole.cross, atol=1e-6)


def test_rows_that_are_not_finite_name_their_tensor() -> None:
    sums = MomentSums("hidden", 3, has_cross=False)
    with pytest.raises(CalibrationError, match="tensor 'hidden'"):
        sums.add(np.array([[1, np.inf, 0]], np.float32), None)


def test_no_rows_are_refused() -> None:
    with pytest.raises(CalibrationError, match="has no rows"):
        MomentSums("hidden", 3, has_cross=False).moments()
