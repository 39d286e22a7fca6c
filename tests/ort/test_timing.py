from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.ort import runtime, turns
from onnxq.ort.turns import PairedTimes, paired_times

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pytest


def test_times_are_taken_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "repeats_of", lambda _seconds: 1)
    calls: list[str] = []

    class Recorded(runtime.Session):
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, *_: object) -> list[npt.NDArray[np.generic]]:
            calls.append(self.name)
            return []

    times = paired_times({"a": Recorded("a"), "b": Recorded("b")}, {"a": {}, "b": {}}, rounds=3)
    assert calls == ["a", "a", "b", "b", "b", "a", "a", "b", "b", "a"]  # two of each not counted
    assert {name: len(seconds) for name, seconds in times.seconds.items()} == {"a": 3, "b": 3}


def test_the_ratio_is_that_of_the_medians() -> None:
    times = PairedTimes({"a": (4.0, 9.0, 6.0), "b": (2.0, 2.0, 50.0)})
    assert times.median_s("a") == 6.0
    assert times.ratio("a", "b") == 3.0
