from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.observers import ChannelMeanObserver
from onnxq.observers.channel_mean import BATCHES, ENOUGH, FEW


def test_means_and_variances_are_those_of_each_channel() -> None:
    x = np.random.default_rng(0).normal(size=(6, 3, 4, 5)).astype(np.float32) + 2
    observer = ChannelMeanObserver(ch_axis=1)
    for i in range(2):
        observer.observe(x[3 * i : 3 * i + 3], i)
    np.testing.assert_allclose(observer.means, x.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(observer.variances, x.var(axis=(0, 2, 3)), rtol=1e-5)


@pytest.mark.parametrize(("shape", "axis"), [((1, 8, 200, 200), 1), ((9000, 16), -1)])
def test_of_many_values_a_part_is_looked_at_that_meets_every_column(
    shape: tuple[int, ...], axis: int
) -> None:
    x = np.broadcast_to(np.arange(shape[-1], dtype=np.float32), shape)
    observer = ChannelMeanObserver(ch_axis=axis)
    observer.observe(x, 0)
    assert observer.rows * shape[axis] <= 1.1 * ENOUGH
    wanted = x.mean(axis=tuple(a for a in range(x.ndim) if a != axis % x.ndim))
    np.testing.assert_allclose(observer.means, wanted, rtol=0.02)


def test_other_channels_than_before_are_refused() -> None:
    observer = ChannelMeanObserver()
    observer.observe(np.ones((2, 3), np.float32), 0)
    with pytest.raises(CalibrationError, match="batch 1: 4 channels; before, there were 3"):
        observer.observe(np.ones((2, 4), np.float32), 1)
    with pytest.raises(CalibrationError, match="has no axis -1"):
        observer.observe(np.ones((), np.float32), 2)


def test_sums_that_are_no_three_a_channel_are_refused() -> None:
    observer = ChannelMeanObserver()
    observer.observe(np.ones((2, 3), np.float32), 0)
    state = {**observer.state(), "sums": observer.state()["sums"][:4]}
    with pytest.raises(CalibrationError, match="4 sums are no three a channel"):
        ChannelMeanObserver().load_state(state)
    state = {**observer.state(), "sums": np.zeros((0, 9), np.int64)}
    with pytest.raises(CalibrationError, match="0 sums are no three a channel"):
        ChannelMeanObserver().load_state(state)
    other = ChannelMeanObserver()
    other.observe(np.ones((2, 4), np.float32), 1)
    with pytest.raises(CalibrationError, match="3 channels with 4"):
        observer.merge(other)


def test_later_batches_are_looked_at_where_they_are_small() -> None:
    large, small = np.ones((FEW, 3), np.float32), np.full((2, 3), 9, np.float32)
    observer = ChannelMeanObserver()
    observer.observe(large, BATCHES - 1)
    rows = observer.rows
    observer.observe(9 * large, BATCHES)
    assert observer.rows == rows
    observer.observe(small, BATCHES + 1)
    assert observer.rows == rows + 2
