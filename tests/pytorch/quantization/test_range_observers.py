"""Ranges of the observers; claims about all observers are in test_observer.py."""

from __future__ import annotations

import pytest
import torch

from onnxq.errors import CalibrationError, ShapeError
from onnxq.pytorch.quantization.uniform_observer import MinMaxObserver, PerChannelMinMaxObserver


def test_the_range_is_in_min_val_and_max_val() -> None:
    observer = MinMaxObserver()
    observer(torch.tensor([-1.0, 2.0]))
    observer(torch.empty(0))
    observer(torch.tensor([0.5]))
    assert (observer.min_val.item(), observer.max_val.item()) == (-1, 2)
    observer.reset_min_max_vals()
    assert observer.min_val.item() == float("inf")


def test_buffers_stay_the_same_objects() -> None:
    observer = PerChannelMinMaxObserver()
    before = [id(buffer) for buffer in observer.buffers()]
    observer(torch.ones(3, 2))
    assert [id(buffer) for buffer in observer.buffers()] == before


def test_nothing_seen_is_said() -> None:
    with pytest.warns(UserWarning, match="has seen no data"):
        scale, zero_point = MinMaxObserver().calculate_qparams()
    assert (scale.tolist(), zero_point.tolist()) == ([1], [0])


def test_nan_is_refused_when_the_scale_is_asked_for() -> None:
    observer = MinMaxObserver()
    observer(torch.tensor([1.0, float("nan")]))
    with pytest.raises(CalibrationError, match="NaN"):
        observer.calculate_qparams()


def test_another_number_of_channels_is_refused() -> None:
    observer = PerChannelMinMaxObserver()
    observer(torch.ones(3, 2))
    with pytest.raises(ShapeError, match="got 4 channels; the batches before had 3"):
        observer(torch.ones(4, 2))
