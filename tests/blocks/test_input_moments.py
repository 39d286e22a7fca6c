"""Second moments of a product's inputs."""

from __future__ import annotations

import numpy as np
import pytest

from onnxq.blocks.input_moments import InputMoments
from onnxq.errors import CalibrationError, ShapeError

ROWS = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)


def test_moments_of_parts_are_merged_to_those_of_the_whole() -> None:
    whole = InputMoments.of_rows(ROWS, ROWS + 1)
    parts = [InputMoments.of_rows(part, part + 1) for part in (ROWS[:3], ROWS[3:])]
    merged = parts[0].merged(parts[1])
    assert merged.count == whole.count
    np.testing.assert_allclose(merged.own, whole.own, rtol=1e-6, atol=1e-6)
    assert merged.cross is not None
    assert whole.cross is not None
    np.testing.assert_allclose(merged.cross, whole.cross, rtol=1e-6, atol=1e-6)


def test_infinite_inputs_are_refused() -> None:
    bad = ROWS.copy()
    bad[0, 0] = np.inf
    with pytest.raises(CalibrationError, match="NaN, Inf"), np.errstate(invalid="ignore"):
        InputMoments.of_rows(bad)


def test_no_rows_are_refused() -> None:
    with pytest.raises(CalibrationError, match="Give samples"):
        InputMoments.of_rows(ROWS[:0])


def test_rows_of_two_models_must_be_as_many() -> None:
    with pytest.raises(ShapeError, match="of the float one"):
        InputMoments.of_rows(ROWS, ROWS[1:])
