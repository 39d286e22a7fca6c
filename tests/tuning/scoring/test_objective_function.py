from __future__ import annotations

import math
from dataclasses import replace

import pytest

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.observers.tensor_noise import noise_at
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import (
    FARTHEST_DB,
    MARGIN_DB,
    SPARE_DB,
    TIME_ERROR,
    TIME_OF_DB,
    ObjectiveFunction,
    noise_of,
)
from onnxq.tuning.scoring.score import Score


def score(db: float = 30.0, metric: float = 0.9, time: float | None = 0.5) -> Score:
    return Score(metric, {"y": db}, 100, time)


def objective(float_metric: float = math.inf, **goal: float | Objective) -> ObjectiveFunction:
    return ObjectiveFunction(Goal(**goal), float_metric)  # type: ignore[arg-type]  # names of bounds


def test_no_error_and_no_comparison_have_a_noise_that_can_be_added() -> None:
    assert noise_of(score(math.inf)) == noise_at(FARTHEST_DB)
    assert noise_of(score(math.nan)) == noise_at(-FARTHEST_DB)


@pytest.mark.parametrize(
    ("db", "violation_db"), [(40.0, 0.0), (30.0, MARGIN_DB), (20.0, 10 + MARGIN_DB)]
)
def test_decibels_are_lacking_up_to_a_margin_above_the_bound(
    db: float, violation_db: float
) -> None:
    assert objective(min_sqnr_db=30).missing_db(score(db)) == pytest.approx(violation_db)


def test_a_drop_that_is_allowed_lacks_nothing_and_a_larger_one_lacks_more() -> None:
    bounded = objective(0.9, max_drop=0.01)
    lacking = [bounded.missing_db(score(metric=0.9 - drop)) for drop in (0.0, 0.005, 0.02, 0.05)]
    assert lacking[:2] == [0.0, 0.0]
    assert 0 < lacking[2] < lacking[3]


def test_any_drop_is_finitely_far_from_none() -> None:
    lacking = objective(0.9, max_drop=0.0).missing_db(score(metric=0.5))
    assert 0 < lacking < 20


def test_time_is_lacking_beyond_its_bound_alone() -> None:
    bounded = objective(max_time=0.8)
    assert bounded.excess_time(score(time=0.8)) == 0.0
    assert bounded.excess_time(score(time=0.9)) == pytest.approx(0.1)
    assert bounded.excess_time(score(time=None)) == 1.0
    assert objective().excess_time(score(time=9.0)) == 0.0


def test_scores_that_keep_the_bounds_come_first_then_what_the_goal_wants_least_of() -> None:
    wanted = objective(min_sqnr_db=30)
    fast, slow, noisy = score(33.0, time=0.5), score(60.0, time=0.9), score(10.0, time=0.1)
    assert sorted([noisy, slow, fast], key=wanted.order) == [fast, slow, noisy]


@pytest.mark.parametrize(
    ("aim", "least"),
    [(Objective.SPEED, 0.5), (Objective.SIZE, 100.0), (Objective.ACCURACY, noise_at(30.0))],
)
def test_worth_is_what_the_objective_names(aim: Objective, least: float) -> None:
    assert objective(objective=aim).value(score()) == pytest.approx(least)


def test_a_few_decibels_beyond_the_bound_are_worth_some_time_and_no_more() -> None:
    wanted = objective(min_sqnr_db=30)
    assert wanted.spare(30.0) == 0.0
    assert wanted.spare(32.0) == pytest.approx((2.0 - MARGIN_DB) * TIME_OF_DB)
    assert wanted.spare(90.0) == SPARE_DB * TIME_OF_DB
    assert objective().spare(90.0) == 0.0


def test_noise_is_allowed_up_to_the_bound_else_that_of_the_beginning() -> None:
    assert objective(min_sqnr_db=30).noise_allowed(score(50.0)) == noise_at(30 + MARGIN_DB)
    assert objective().noise_allowed(score(50.0)) == noise_at(50.0)
    begun = replace(objective(), begun_noise=noise_at(40.0))
    assert begun.noise_allowed(score(50.0)) == noise_at(40.0)
    assert begun.noise_allowed(score(30.0)) == noise_at(30.0)


def test_noise_that_a_metric_allows_is_a_step_from_there_or_ahead_of_the_beginning() -> None:
    begun = replace(objective(0.9, max_drop=0.1), begun_noise=noise_at(40.0))
    assert begun.noise_allowed(score(38.0)) == 2 * noise_at(38.0)
    assert begun.noise_allowed(score(50.0)) == noise_at(40.0) / 2
    assert begun.noise_allowed(score(math.inf)) == noise_at(40.0) / 2


def test_noise_that_is_aimed_at_takes_away_what_is_lacking() -> None:
    wanted = objective(min_sqnr_db=30)
    assert wanted.target_noise(score(20.0)) == pytest.approx(noise_at(30 + MARGIN_DB))


def test_what_is_uncertain_of_a_time_weighs_as_much_as_what_is_of_an_error() -> None:
    wanted = objective(min_sqnr_db=30, max_time=0.5)
    late, loud = score(40.0, time=0.5 + TIME_ERROR), score(30.0, time=0.5)
    assert wanted.violation_db(late) == pytest.approx(wanted.violation_db(loud))
