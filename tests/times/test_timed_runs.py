from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
import pytest

from onnxq.times import timed_runs
from onnxq.times.timed_runs import WholeTime, paired_sessions, profiled
from tests.examples import as_ir, images, network
from tests.tuning.parts import evaluator_of, labelled


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_runs, "MEASURED_S", 0.01)


def test_one_sample_is_timed_whatever_the_batch_is() -> None:
    batches = [{"x": images(6)}, {"x": images(6)}]
    evaluator = evaluator_of(samples=[*batches, *batches])
    assert evaluator.one_row()["x"].shape[0] == 1
    assert set(evaluator_of(samples=labelled()).one_row()) == {"x"}


def test_profile_and_whole_runs_are_of_the_same_model() -> None:
    (found,) = profiled([as_ir(network())], {"x": images(1)})
    assert set(found.nodes) == {node.name for node in found.optimized.graph}
    assert found.whole_ns > 0
    assert len(found.rounds_s) >= timed_runs.LEAST_ROUNDS


class Opened:
    """A session that keeps which of two models was opened and run, in order."""

    def __init__(self, name: str, said: list[str]) -> None:
        self.name, self.said = name, said
        said.append(name.upper())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, _feeds: object) -> None:
        self.said.append(self.name)


def test_sessions_are_opened_anew_as_often_first_as_second() -> None:
    said: list[str] = []
    openers: Any = tuple(partial(Opened, name, said) for name in "ab")
    pairs = paired_sessions(openers, ({}, {}), rounds=8)
    assert "".join(word for word in said if word.isupper()) == "ABBABAABABBA"
    assert [(len(ours), len(theirs)) for ours, theirs in pairs] == [(2, 2)] * 6


def test_the_interval_holds_what_sessions_differ_by() -> None:
    """Within each pair one model is faster without any noise, and not always the same one."""
    rounds = np.ones(20)
    pairs = [(rounds * factor, rounds) for factor in (1.1, 0.9, 1.05, 0.95)]
    found = WholeTime.of_sessions(pairs)
    assert found.low < 0.95 < found.ratio < 1.05 < found.high
    assert found.ratio == pytest.approx(np.exp(np.log([1.1, 0.9, 1.05, 0.95]).mean()))
    steady = WholeTime.of_sessions([(rounds * 2, rounds)] * 4)
    assert (steady.low, steady.high) == pytest.approx((2, 2))


def test_the_interval_of_equal_models_leaves_out_1_in_one_of_20_trials() -> None:
    rng = np.random.default_rng(0)
    left_out = 0
    for _ in range(400):
        pairs = [
            tuple(np.exp(rng.normal(0, 0.05) + rng.normal(0, 0.02, 12)) for _ in range(2))
            for _ in range(4)
        ]
        found = WholeTime.of_sessions([(x, y) for x, y in pairs])
        left_out += not found.low <= 1 <= found.high
    assert left_out / 400 <= 0.06
