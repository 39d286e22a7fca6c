from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.observers import FloatHistogramObserver


def test_every_value_is_counted_within_an_eighth_of_its_size() -> None:
    x = np.array([-3.0, 0.0, 1e-20, 5e-3, 7.0, 1e10], np.float32)
    observer = FloatHistogramObserver()
    observer.observe(x, 0)
    values, counts = observer.occupied()
    assert counts.tolist() == [1] * 6
    np.testing.assert_allclose(np.sort(values), np.sort(x), rtol=0.125)


def test_zeros_are_zeros() -> None:
    observer = FloatHistogramObserver()
    observer.observe(np.array([0.0, -0.0, 4.0], np.float32), 0)
    values, counts = observer.occupied()
    assert counts[values == 0].sum() == 2


def test_a_state_of_other_bins_is_refused() -> None:
    state = {**FloatHistogramObserver().state(), "counts": np.zeros(3, np.int64)}
    with pytest.raises(CalibrationError, match="3 counts; wanted 2048"):
        FloatHistogramObserver().load_state(state)
