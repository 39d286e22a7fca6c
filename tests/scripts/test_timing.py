from __future__ import annotations

from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from scripts import _timing
from scripts._timing import (
    Ratio,
    median_seconds,
    paired_ratio,
    ratios,
    session,
    taking_turns,
)
from tests.examples import network

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second each time that someone looks."""
    seconds = count()
    clocks = dict.fromkeys(("thread_time", "process_time"), lambda: float(next(seconds)))
    monkeypatch.setattr(_timing, "time", SimpleNamespace(**clocks))


def runs(log: list[str]) -> dict[str, Callable[[], object]]:
    return {name: partial(log.append, name) for name in "ab"}


@pytest.mark.usefixtures("clock")
def test_the_order_turns_in_every_round() -> None:
    log: list[str] = []
    times = taking_turns(runs(log), 2)
    assert "".join(log) == "aabb" + "ba" + "ab"
    assert {name: each.tolist() for name, each in times.items()} == {"a": [1, 1], "b": [1, 1]}


@pytest.mark.usefixtures("clock")
def test_the_first_round_warms_up() -> None:
    log: list[str] = []
    assert median_seconds(runs(log), 3) == {"a": 1, "b": 1}
    assert "".join(log) == "ab" * 4


def test_ratios_are_of_each_session_to_each() -> None:
    sessions = {name: session(network(batch=1)) for name in ("one", "two")}
    x = np.ones(sessions["one"].get_inputs()[0].shape, np.float32)
    found = ratios(sessions, x, 3, least_s=1e-6)
    assert {name: list(row) for name, row in found.items()} == {
        "one": ["", "one", "two"],
        "two": ["", "one", "two"],
    }
    assert found["one"]["one"] == 1


def test_the_median_ratio_comes_with_the_ranks_around_it() -> None:
    found = paired_ratio(np.arange(1.0, 32.0), np.ones(31))
    assert (found.median, found.low, found.high) == (16, 11, 21)


def test_slower_is_over_three_percent_and_beyond_doubt() -> None:
    assert Ratio(1.04, 1.01, 1.1).is_slower
    assert not Ratio(1.04, 0.99, 1.1).is_slower
    assert not Ratio(1.02, 1.01, 1.03).is_slower
