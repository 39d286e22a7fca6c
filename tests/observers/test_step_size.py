from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import StepSizeObserver


@pytest.mark.parametrize(("quant_max", "axis"), [(7, 0), (7, -1), (127, 1), (3, None)])
def test_the_scale_is_twice_the_mean_magnitude_over_the_root_of_the_largest_integer(
    quant_max: int, axis: int | None
) -> None:
    x = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
    observer = StepSizeObserver(quant_max, axis)
    observer.observe(x, 0)
    others = None if axis is None else tuple(i for i in range(3) if i != axis % 3)
    wanted = 2 * np.abs(x).mean(axis=others, dtype=np.float64) / np.sqrt(quant_max)
    found = observer.calculate_qparams()
    np.testing.assert_allclose(found.scale, wanted, rtol=1e-6)
    assert found.scale.shape == wanted.shape
    assert not found.zero_point.any()


def test_channels_of_zeros_get_the_smallest_scale() -> None:
    observer = StepSizeObserver(eps=2.0**-20)
    observer.observe(np.zeros((2, 5), np.float32), 0)
    assert (observer.calculate_qparams().scale == 2.0**-20).all()


def test_unsigned_integers_and_other_channels_are_refused() -> None:
    with pytest.raises(QConfigError, match="wanted a range that encloses 0 and lies inside uint8"):
        StepSizeObserver(dtype="uint8")
    observer = StepSizeObserver()
    observer.observe(np.ones((2, 5), np.float32), 0)
    with pytest.raises(CalibrationError, match="3 channels on axis 0; before, there were 2"):
        observer.observe(np.ones((3, 5), np.float32), 1)
    with pytest.raises(CalibrationError, match="2 sums of 5 values with ch_axis None"):
        StepSizeObserver(ch_axis=None).load_state(observer.state())
