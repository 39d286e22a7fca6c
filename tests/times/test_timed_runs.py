from __future__ import annotations

import pytest

from onnxq.times import timed_runs
from onnxq.times.timed_runs import profiled, whole_times
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


def test_every_model_has_a_time_in_every_round() -> None:
    model = as_ir(network())
    taken = whole_times([model, model, model], {"x": images(1)})
    assert len(taken) == 3
    (rounds,) = {len(each) for each in taken}
    assert rounds >= timed_runs.LEAST_ROUNDS  # and more where these are soon over
    assert min(map(min, taken)) > 0


def test_profile_and_whole_runs_are_of_the_same_model() -> None:
    (found,) = profiled([as_ir(network())], {"x": images(1)})
    assert set(found.nodes) == {node.name for node in found.optimized.graph}
    assert found.whole_ns > 0
    assert len(found.rounds_s) >= timed_runs.LEAST_ROUNDS
