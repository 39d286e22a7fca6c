from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import MinMaxObserver, PerChannelMinMaxObserver
from onnxq.qparams import PerChannel

X = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_each_channel_is_as_min_max_alone(axis: int) -> None:
    observer = PerChannelMinMaxObserver(ch_axis=axis)
    observer.observe(X, 0)
    p = observer.calculate_qparams()
    assert p.granularity == PerChannel(axis)
    for channel in range(X.shape[axis]):
        alone = MinMaxObserver()
        alone.observe(X.take([channel], axis), 0)
        assert alone.calculate_qparams().scale == p.scale[channel]
        assert alone.calculate_qparams().zero_point == p.zero_point[channel]


def test_numbers_of_channels_must_agree() -> None:
    observer = PerChannelMinMaxObserver()
    observer.observe(X, 0)
    with pytest.raises(CalibrationError, match="batch 1: got 3 channels"):
        observer.observe(X[:3], 1)


def test_axis_outside_the_rank_is_named() -> None:
    with pytest.raises(CalibrationError, match=r"batch 0: shape \(4, 3, 5\) has no ch_axis 3"):
        PerChannelMinMaxObserver(ch_axis=3).observe(X, 0)


def test_per_tensor_qscheme_is_refused() -> None:
    with pytest.raises(QConfigError, match="for each channel"):
        PerChannelMinMaxObserver(qscheme="per_tensor_affine")
