from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.report.console import open_console
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.left_in_float import (
    LeftInFloat,
    WhyFloat,
    left_in_float,
)
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.search.proposals import Proposals
from onnxq.tuning.tables import print_left_in_float, why_float
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

NETWORK = Network(
    (
        Layer(1e-6, 0.3, 0.1),
        Layer(1e-6, 0.2, 0.3),
        Layer(1e-2, 0.3, 0.1),
        Layer(1e-7, 0.1, 0.095),
        Layer(1e-7, 0.1, 0.05),
    )
)
GOAL = Goal(min_sqnr_db=40.0, max_runs=5)


def left(goal: Goal = GOAL) -> dict[str, LeftInFloat]:
    """Layers left with all but the first in float, by the names of groups."""
    groups = NETWORK.groups
    precisions = [INTEGER, *[FLOAT] * (len(groups) - 1)]
    changes = map(PrecisionChange, groups, precisions)
    point = MeasuredCandidate(NETWORK.start.with_changes(changes), NETWORK.score(precisions))
    noise = {u.anchor.name: x.noise for u, x in zip(groups, NETWORK.layers, strict=True)}

    def time_of(candidate: Candidate) -> float | None:
        return NETWORK.score([candidate.precision(group) for group in groups]).time_ratio

    proposals = Proposals(ObjectiveFunction(goal, math.inf), NoiseEstimates(noise), time_of)
    return {each.group: each for each in left_in_float(point, proposals)}


def printed(above_db: float, *whys: WhyFloat, more: str = "") -> str:
    rows = [LeftInFloat(f"Conv, {i}", 0.1, 30.0, why) for i, why in enumerate(whys)]
    score = Score(40.0 + above_db, {"y": 40.0 + above_db}, 1000, 0.9)
    file = io.StringIO()
    print_left_in_float(open_console(file), rows, score, GOAL, more=more)
    return file.getvalue()


def test_each_layer_type_says_why_it_is_in_float() -> None:
    found = left()
    names = [f"Conv, /layer{i}" for i in (1, 2, 3, 4)]
    assert [found[name].why for name in names] == [
        WhyFloat.SLOWER,
        WhyFloat.BELOW_BOUND,
        WhyFloat.SAVES_LITTLE,
        WhyFloat.NOT_FOUND,
    ]
    assert found[names[0]].time == pytest.approx(0.1)
    assert found[names[1]].db == pytest.approx(20.0, abs=0.1)


def test_without_a_bound_the_beginning_is_what_counts() -> None:
    assert {each.why for each in left(Goal()).values()} == {
        WhyFloat.SLOWER,
        WhyFloat.LESS_ACCURATE,
    }


@pytest.mark.parametrize("goal", [replace(GOAL, objective=Objective.SIZE), Goal(min_sqnr_db=80.0)])
def test_nothing_is_said_of_searches_for_less_than_speed_or_without_success(goal: Goal) -> None:
    assert left(goal) == {}


@pytest.mark.parametrize(("above_db", "is_said"), [(10.0, True), (1.0, False)])
def test_more_accuracy_than_was_asked_for_is_explained(above_db: float, is_said: bool) -> None:
    assert (
        "10.0 dB more than the bound" in printed(above_db, WhyFloat.SLOWER, WhyFloat.BELOW_BOUND)
    ) is is_said


def test_a_search_that_was_cut_does_not_say_that_nothing_is_faster() -> None:
    assert "alone or together, are predicted" in printed(10.0, WhyFloat.SLOWER)
    said = printed(10.0, WhyFloat.SLOWER, more="a larger --max-seconds")
    assert "layers may gain together" in said
    assert "try a larger --max-seconds" in " ".join(said.split())


def test_what_is_predicted_to_be_faster_is_not_denied_below_its_row() -> None:
    said = printed(10.0, WhyFloat.SLOWER, WhyFloat.NOT_FOUND)
    assert "are predicted" not in said
    assert "was not where it was measured" in said


def test_a_search_for_size_is_not_told_to_search_for_size() -> None:
    goal = replace(GOAL, objective=Objective.SIZE)
    said = why_float([Score(50.0, {"y": 50.0}, 1000, 1.0)], goal, more="")
    assert "keeps the bound and is smaller" in said
    assert "--objective" not in said


def test_an_exact_model_keeps_no_number_of_decibels_more() -> None:
    assert "more than the bound" not in printed(math.inf, WhyFloat.SLOWER)


def test_nothing_left_is_no_table() -> None:
    assert printed(10.0) == ""


@pytest.mark.parametrize(
    ("db", "goal", "more", "words"),
    [
        (30.0, GOAL, "--max-runs 10", "quantized model of 1 keeps 30.0 dB of the 40 dB"),
        (30.0, GOAL, "--max-runs 10", "Try --max-runs 10, or a wider bound"),
        (50.0, GOAL, "", "keeps the bound and is faster"),
        (50.0, GOAL, "", "Try a wider bound"),
        (50.0, Goal(), "", "better by this goal. Try --improve"),
    ],
)
def test_a_float_model_is_chosen_for_a_reason(db: float, goal: Goal, more: str, words: str) -> None:
    assert words in why_float([Score(db, {"y": db}, 1000, 1.0)], goal, more=more)


def test_an_output_without_a_number_is_named_and_asks_for_a_metric() -> None:
    said = why_float([Score(-math.inf, {"y": 50.0, "box": math.nan}, 1000, 1.0)], GOAL, more="x")
    assert said.startswith("output 'box' cannot be compared")
    assert "--metric FILE.py:function" in said
    assert "--max-runs" not in said


def test_a_float_model_beside_no_other_says_so() -> None:
    assert "no other model was measured" in why_float([], GOAL, more="--max-runs 10")
