from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.errors import CalibrationError
from onnxq.observers import (
    AmaxObserver,
    ChannelHistogramObserver,
    EntropyObserver,
    HistogramObserver,
    LeastErrorObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NarrowRangeObserver,
    NoopObserver,
    PercentileObserver,
    PerChannelMinMaxObserver,
    RecordingObserver,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.core.arrays import Array
    from onnxq.observers._base import State

OBSERVERS = {
    spec.name: spec
    for spec in (
        HistogramObserver.with_args(),
        MinMaxObserver.with_args(),
        MovingAverageMinMaxObserver.with_args(averaging_constant=0.5),
        PercentileObserver.with_args(percentile=99.0),
        EntropyObserver.with_args(),
        AmaxObserver.with_args(),
        ChannelHistogramObserver.with_args(ch_axis=1),
        LeastErrorObserver.with_args(),
        MovingAveragePerChannelMinMaxObserver.with_args(ch_axis=1),
        NarrowRangeObserver.with_args(),
        NoopObserver.with_args(),
        PerChannelMinMaxObserver.with_args(ch_axis=1),
        RecordingObserver.with_args(),
    )
}
WRONG: dict[str, Callable[[Array], Array]] = {
    "another rank": lambda x: x[None],
    "NaN": lambda x: np.full(x.shape, np.nan, np.float32),
    "text": lambda x: np.full(x.shape, "x"),
}


def _observed(name: str) -> State:
    observer = OBSERVERS[name]()
    observer.observe(np.linspace(-1, 2, 24, dtype=np.float32).reshape(4, 6), 0)
    return dict(observer.state())


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_state_that_no_observer_gives_is_refused(name: str) -> None:
    state = _observed(name)
    for key, array in state.items():
        without = {other: x for other, x in state.items() if other != key}
        with pytest.raises(CalibrationError, match="saved state"):
            OBSERVERS[name].restore(without)
        if key.startswith("batch ") and name == "RecordingObserver":
            continue  # takes what there is
        for make in WRONG.values():
            with pytest.raises(CalibrationError, match="saved state"):
                OBSERVERS[name].restore({**state, key: make(array)})
