from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import CalibrationError
from onnxq.observers import ChannelHistogramObserver, HistogramObserver

RNG = np.random.default_rng(0)
BATCHES = [np.abs(RNG.standard_normal((2, 3, 4))).astype(np.float32) * (i + 1) for i in range(5)]


def observed(indices: list[int]) -> ChannelHistogramObserver:
    observer = ChannelHistogramObserver()
    for i in indices:
        observer.observe(BATCHES[i], i)
    return observer


def test_qparams_are_those_of_histogram_observer() -> None:
    plain = HistogramObserver()
    for i, batch in enumerate(BATCHES):
        plain.observe(batch, i)
    assert observed([0, 1, 2, 3, 4]).calculate_qparams() == plain.calculate_qparams()


def test_absmax_is_that_of_each_channel() -> None:
    wanted = np.abs(np.concatenate(BATCHES)).max(axis=(0, 2))
    np.testing.assert_array_equal(observed([0, 1, 2, 3, 4]).channel_absmax, wanted)


@given(st.permutations(range(5)), st.integers(1, 4))
def test_merging_any_split_in_any_order_gives_the_same_state(order: list[int], cut: int) -> None:
    merged = observed(order[cut:]).merge(observed(order[:cut]))
    whole = observed([0, 1, 2, 3, 4]).state()
    state = merged.state()
    assert state.keys() == whole.keys()
    assert all(np.array_equal(state[key], whole[key]) for key in whole)


def test_state_survives_a_round_trip() -> None:
    observer = observed([0, 3])
    restored = observer.spec.restore(observer.state())
    assert isinstance(restored, ChannelHistogramObserver)
    np.testing.assert_array_equal(restored.channel_absmax, observer.channel_absmax)
    assert restored.calculate_qparams() == observer.calculate_qparams()


def test_empty_batch_changes_nothing() -> None:
    observer = ChannelHistogramObserver()
    observer.observe(np.empty((0, 3, 4), np.float32), 0)
    assert observer.channel_absmax.size == 0


def test_other_number_of_channels_is_refused_and_leaves_no_trace() -> None:
    observer = observed([0])
    before = observer.state()
    with pytest.raises(CalibrationError, match="got 5 channels"):
        observer.observe(np.ones((2, 5, 4), np.float32), 1)
    after = observer.state()
    assert all(np.array_equal(before[key], after[key]) for key in before)
