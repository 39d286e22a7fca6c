from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.objective_function import ObjectiveFunction
from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.search.proposals import Proposals
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

if TYPE_CHECKING:
    from onnxq.tuning.search.proposals import Batch

# the first is loud, the second slow in integers, the third neither
NETWORK = Network((Layer(1e-3, 0.4, 0.2, 10), Layer(1e-7, 0.2, 0.3), Layer(1e-6, 0.4, 0.2)))
FIRST, SECOND, THIRD = NETWORK.groups


def point(*floats: int) -> MeasuredCandidate:
    """The point with these layers in float."""
    candidate = NETWORK.start.with_changes(
        PrecisionChange(NETWORK.groups[i], FLOAT) for i in floats
    )
    return MeasuredCandidate(
        candidate, NETWORK.score([candidate.precision(group) for group in NETWORK.groups])
    )


def proposals(goal: Goal) -> Proposals:
    def time_of(candidate: Candidate) -> float | None:
        return NETWORK.score([candidate.precision(group) for group in NETWORK.groups]).time_ratio

    named = zip(NETWORK.groups, NETWORK.layers, strict=True)
    estimates = NoiseEstimates({group.anchor.name: layer.noise for group, layer in named})
    return Proposals(ObjectiveFunction(goal, math.inf), estimates, time_of)


def with_changes(batch: Batch) -> dict[str, object]:
    return {change.group.anchor.name: change.precision for change in batch}


def test_the_loud_layer_goes_to_float_where_accuracy_is_lacking() -> None:
    batch = proposals(Goal(min_sqnr_db=40)).batch(point(), ())
    assert with_changes(batch)["/layer0"] is FLOAT
    assert "/layer2" not in with_changes(batch)


def test_the_slow_layer_goes_to_float_where_speed_is_wanted() -> None:
    assert with_changes(proposals(Goal()).batch(point(), ())) == {"/layer1": FLOAT}


def test_changes_that_are_closed_are_not_proposed() -> None:
    assert proposals(Goal()).batch(point(), {("/layer1", FLOAT)}) == ()


def test_weights_go_to_integers_where_size_is_wanted_as_far_as_the_bound_allows() -> None:
    goal = Goal(min_sqnr_db=40, objective=Objective.SIZE)
    assert with_changes(proposals(goal).batch(point(0, 1, 2), ())) == {
        "/layer1": INTEGER,
        "/layer2": INTEGER,
    }


def test_the_group_that_decides_is_probed_within_a_time_alone() -> None:
    wanted = Goal(max_time=0.8, objective=Objective.ACCURACY)
    assert with_changes(proposals(wanted).probe(point(1), set())) == {"/layer0": FLOAT}
    assert proposals(wanted).probe(point(1), {"/layer0"}) == ()
    assert proposals(Goal(objective=Objective.ACCURACY)).probe(point(1), set()) == ()
    assert proposals(Goal(max_time=0.8)).probe(point(1), set()) == ()
