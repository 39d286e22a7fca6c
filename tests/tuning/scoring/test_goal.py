from __future__ import annotations

import json
import math

import numpy as np
import pytest

from onnxq.core.saved import plain
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import QConfigError
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.score import Score


def score(metric: float = 0.9, db: float = 30.0, ratio: float | None = 0.5) -> Score:
    return Score(metric, {"y": db, "z": 40.0}, 1000, ratio)


def test_a_goal_reads_as_a_sentence() -> None:
    assert str(Goal()) == "as fast as it gets in 40 runs"
    goal = Goal(30, 0.001, 1, Objective.SIZE, 20, 60)
    assert str(goal) == (
        "at least 30 dB and a metric at most 0.001 below float's and at most 1 of float's time, "
        "and as small as it gets in 20 runs and 60 s"
    )


def test_an_objective_may_be_named() -> None:
    assert Goal(objective="size").objective is Objective.SIZE  # type: ignore[arg-type]  # as users do


def test_a_score_within_all_bounds_misses_none() -> None:
    assert Goal(30, 0.1, 0.5).missed(score(), 1.0) == ()
    assert Goal().missed(score(ratio=None), math.inf) == ()


def test_every_bound_that_is_missed_is_said() -> None:
    missed = Goal(31, 0.05, 0.4).missed(score(), 1.0)
    assert missed == (
        "30.00 dB of 31 dB",
        "the metric drops by 0.1 of at most 0.05",
        "time over float's: 0.500, of at most 0.4",
    )


def test_nan_and_unknown_times_keep_no_bound() -> None:
    (missed,) = Goal(min_sqnr_db=-100).missed(score(db=math.nan), 1.0)
    assert missed.startswith("output 'y' cannot be compared with float's")
    assert Goal(max_drop=1).missed(score(metric=math.nan), 1.0)
    assert Goal(max_time=1).missed(score(ratio=None), 1.0)


def test_infinite_sqnr_keeps_every_bound() -> None:
    assert Goal(min_sqnr_db=200).missed(Score(1, {"y": math.inf}, 1), 1.0) == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"min_sqnr_db": math.nan}, "min_sqnr_db is nan"),
        ({"min_sqnr_db": "30"}, "min_sqnr_db is '30'"),
        ({"max_drop": -0.1}, "max_drop is -0.1; wanted at least 0"),
        ({"max_time": 0}, "max_time is 0, which no model reaches"),
        ({"max_time": True}, "max_time is True"),
        ({"max_runs": 0}, "wanted at least 1"),
        ({"max_runs": 2.5}, "max_runs is a float; wanted a whole number from 1"),
        ({"max_seconds": math.inf}, "max_seconds is inf"),
        ({"objective": "sped"}, "Did you mean 'speed'"),
        ({"improve": "bias"}, "got 'bias'; wanted a list of names"),
        ({"improve": ["bais"]}, "Did you mean 'bias'"),
        ({"metric": "accuracy"}, "metric 'accuracy' is not known"),
    ],
)
def test_what_is_no_bound_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(QConfigError, match=said):
        Goal(**arguments)  # type: ignore[arg-type]  # the point


def test_numbers_of_numpy_are_numbers() -> None:
    goal = Goal(min_sqnr_db=np.float32(30), max_runs=np.int64(3))  # type: ignore[arg-type]  # as users do
    assert goal == Goal(min_sqnr_db=30.0, max_runs=3)
    assert json.loads(json.dumps(plain(goal)))["min_sqnr_db"] == 30.0
