"""A run takes times and scores from its journal, and keeps to its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import UnsupportedError
from onnxq.operator import Precision
from onnxq.ort.layouts import CONVOLUTION
from onnxq.qconfig import Choice
from onnxq.times.model_times import Times
from onnxq.tuning.evaluation.evaluations import Evaluations, Journal, JournalHead
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.search.candidate import PER_TENSOR
from onnxq.tuning.search.pareto_candidates import Clock
from onnxq.tuning.search.search import BY_DEFAULT, HERE, SENSITIVITY_SHARE, TIMES, Search, times_in
from tests.examples import ALL_INTEGERS
from tests.tuning.parts import chain, evaluator_of

if TYPE_CHECKING:
    from onnxq.checking.runnable import Made
    from onnxq.qconfig import QConfigMapping
    from onnxq.static.plan import Plan
    from onnxq.tuning.evaluation.evaluator import Evaluator

HEAD = JournalHead("model", "samples", "sqnr", "portable", "1")
KNOWN = Times("another search", {}, {}, {}, {}, 1.0)


@pytest.fixture(scope="module")
def evaluator() -> Evaluator:
    x = np.random.default_rng(0).standard_normal((80, 16)).astype(np.float32)
    return evaluator_of(chain(), {"x": x})


def test_times_are_those_of_the_journal(evaluator: Evaluator) -> None:
    journal = Journal.open(None, HEAD)
    journal.append(TIMES, HERE, KNOWN)
    assert times_in(journal, evaluator, None) == KNOWN


@pytest.mark.parametrize("most", [2, 20])
def test_the_sensitivity_takes_its_share_of_the_runs_at_most(
    evaluator: Evaluator, most: int
) -> None:
    told: list[tuple[int, int | None]] = []
    goal = replace(Goal(), max_runs=most)
    evaluations = Evaluations(evaluator, Journal.open(None, HEAD))
    run = Search(evaluations, goal, None, lambda *runs: told.append(runs))
    asked = evaluator.subject.default
    groups = run.groups(asked, ())
    assert {group.anchor.name for group in groups} == {"first", "second"}
    found = run.sensitivity(asked, groups)
    assert 0 < run.runs <= SENSITIVITY_SHARE * most
    assert run.runs == found.runs
    assert not told  # no whole run was made


def test_from_all_integers_the_default_is_another_beginning(evaluator: Evaluator) -> None:
    evaluations = Evaluations(evaluator, Journal.open(None, HEAD))
    run = Search(evaluations, Goal(), None, lambda *_runs: None)
    (only,) = run.starts(evaluator.subject.default)
    first, other = run.starts(ALL_INTEGERS)
    assert (only.name, first.name, other.name) == ("", "", BY_DEFAULT)
    assert other.start.nodes == only.start.nodes


def test_a_default_that_cannot_be_made_is_no_beginning(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantized = evaluator.quantized

    def refusing(mapping: QConfigMapping) -> Made[Plan]:
        if mapping.choice is Choice.BEST:
            raise UnsupportedError("no Clip on integers of 16 bits")
        return quantized(mapping)

    monkeypatch.setattr(evaluator, "quantized", refusing)
    evaluations = Evaluations(evaluator, Journal.open(None, HEAD))
    (only,) = Search(evaluations, Goal(), None, lambda *_runs: None).starts(ALL_INTEGERS)
    assert only.name == ""


@pytest.mark.parametrize(("least_db", "is_tried"), [(None, False), (1.0, True)])
def test_weights_per_tensor_are_tried_where_a_bound_says_what_they_may_lose(
    evaluator: Evaluator, least_db: float | None, is_tried: bool
) -> None:
    goal = Goal(min_sqnr_db=least_db, max_runs=8)
    journal = Journal.open(None, HEAD)
    evaluations = Evaluations(evaluator, journal)
    run = Search(evaluations, goal, None, lambda *_runs: None, Clock(evaluator, journal))
    asked = evaluator.subject.default
    begun = run.begin(asked)
    found = run.run(begun, run.sensitivity(asked, begun.start.groups))
    tried = [word for point in found.points for word in point.candidate.words]
    assert any(word.startswith("weights per tensor: ") for word in tried) == is_tried


def test_weights_of_a_convolution_keep_a_scale_per_channel() -> None:
    """One scale takes no time of a convolution away (benchmarks/results/moves.md)."""
    evaluator = evaluator_of()
    goal, journal = Goal(min_sqnr_db=1.0, max_runs=8), Journal.open(None, HEAD)
    clock = Clock(evaluator, journal)
    run = Search(Evaluations(evaluator, journal), goal, None, lambda *_runs: None, clock)
    asked = evaluator.subject.default
    begun = run.begin(asked)
    convolutions = {u.anchor.name for u in begun.start.groups if u.anchor.op_type == CONVOLUTION}
    found = run.run(begun, run.sensitivity(asked, begun.start.groups))
    of_tensors = [
        entry.weight
        for point in found.points
        for name, entry in point.candidate.mapping.nodes.items()
        if name in convolutions and entry is not None
    ]
    assert convolutions
    assert PER_TENSOR not in of_tensors


@pytest.mark.parametrize("has_clock", [True, False])
@pytest.mark.parametrize(
    ("aim", "is_stored"), [(Objective.SIZE, True), (Objective.ACCURACY, False)]
)
def test_all_weights_stored_are_measured_where_bytes_count(
    evaluator: Evaluator, aim: Objective, is_stored: bool, has_clock: bool
) -> None:
    """Models with stored weights have no quantized activations, whose scales a small file shows."""
    goal, journal = Goal(objective=aim, max_runs=8), Journal.open(None, HEAD)
    clock = Clock(evaluator, journal) if has_clock else None
    run = Search(Evaluations(evaluator, journal), goal, None, lambda *_runs: None, clock)
    asked = evaluator.subject.default
    begun = run.begin(asked)
    found = run.run(begun, run.sensitivity(asked, begun.start.groups))
    best = found.best
    precisions = {best.candidate.precision(group) for group in best.candidate.groups}
    assert (precisions == {Precision.WEIGHT_ONLY}) is is_stored
    if is_stored:
        assert best.score.size_bytes == min(point.score.size_bytes for point in found.points)
