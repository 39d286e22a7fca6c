from __future__ import annotations

import numpy as np
import pytest

from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers import MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver


def test_folds_in_the_order_of_the_index_not_of_arrival() -> None:
    data = [np.asarray([0, high], np.float32) for high in (1.0, 10.0, 4.0)]
    forward = MovingAverageMinMaxObserver(averaging_constant=0.5)
    shuffled = MovingAverageMinMaxObserver(averaging_constant=0.5)
    for index in (0, 1, 2):
        forward.observe(data[index], index)
    for index in (2, 0, 1):
        shuffled.observe(data[index], index)
    # 1 -> 5.5 -> 4.75
    assert forward.calculate_qparams().scale == np.float32(4.75) / np.float32(255)
    assert shuffled.calculate_qparams() == forward.calculate_qparams()


def test_same_index_of_shared_tensors_is_one_batch() -> None:
    left, right = MovingAverageMinMaxObserver(), MovingAverageMinMaxObserver()
    left.observe(np.asarray([-1.0, 2.0], np.float32), 0)
    right.observe(np.asarray([-3.0, 1.0], np.float32), 0)
    state = left.merge(right).state()
    values = {key: value.tolist() for key, value in state.items()}
    assert values == {"index": [0], "min": [-3.0], "max": [2.0]}


@pytest.mark.parametrize("constant", [0.0, -0.1, 1.5])
def test_averaging_constant_outside_0_to_1_is_refused(constant: float) -> None:
    with pytest.raises(QConfigError, match="0 < constant <= 1"):
        MovingAverageMinMaxObserver(averaging_constant=constant)


def test_numbers_of_channels_must_agree() -> None:
    observer = MovingAveragePerChannelMinMaxObserver(ch_axis=1)
    observer.observe(np.ones((2, 3), np.float32), 0)
    with pytest.raises(CalibrationError, match="batch 1: got 4 channels"):
        observer.observe(np.ones((2, 4), np.float32), 1)


def test_qschemes_of_the_other_kind_are_refused() -> None:
    with pytest.raises(QConfigError, match="one range"):
        MovingAverageMinMaxObserver(qscheme="per_channel_affine")
    with pytest.raises(QConfigError, match="for each channel"):
        MovingAveragePerChannelMinMaxObserver(qscheme="per_tensor_affine")
