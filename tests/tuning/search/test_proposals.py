from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxq.tuning.scoring.goal import Aim, Goal
from onnxq.tuning.scoring.objective_function import Standing
from onnxq.tuning.search.candidate import FormMove, Point, Position
from onnxq.tuning.search.estimator import Estimates
from onnxq.tuning.search.proposals import Proposals
from tests.tuning.made_up import FLOAT, INTEGER, Layer, Network

if TYPE_CHECKING:
    from onnxq.tuning.search.proposals import Batch

# the first is loud, the second slow in integers, the third neither
NETWORK = Network((Layer(1e-3, 0.4, 0.2, 10), Layer(1e-7, 0.2, 0.3), Layer(1e-6, 0.4, 0.2)))
FIRST, SECOND, THIRD = NETWORK.units


def point(*floats: int) -> Point:
    """The point with these layers in float."""
    position = NETWORK.start.moved(FormMove(NETWORK.units[i], FLOAT) for i in floats)
    return Point(position, NETWORK.score([position.form(unit) for unit in NETWORK.units]))


def proposals(goal: Goal) -> Proposals:
    def time_of(position: Position) -> float | None:
        return NETWORK.score([position.form(unit) for unit in NETWORK.units]).time_ratio

    named = zip(NETWORK.units, NETWORK.layers, strict=True)
    estimates = Estimates({unit.anchor.name: layer.noise for unit, layer in named})
    return Proposals(Standing(goal, math.inf), estimates, time_of)


def moved(batch: Batch) -> dict[str, object]:
    return {move.unit.anchor.name: move.form for move in batch}


def test_the_loud_layer_goes_to_float_where_accuracy_is_lacking() -> None:
    batch = proposals(Goal(min_sqnr_db=40)).batch(point(), ())
    assert moved(batch)["/layer0"] is FLOAT
    assert "/layer2" not in moved(batch)


def test_the_slow_layer_goes_to_float_where_speed_is_wanted() -> None:
    assert moved(proposals(Goal()).batch(point(), ())) == {"/layer1": FLOAT}


def test_moves_that_are_closed_are_not_proposed() -> None:
    assert proposals(Goal()).batch(point(), {("/layer1", FLOAT)}) == ()


def test_weights_go_to_codes_where_size_is_wanted_as_far_as_the_bound_allows() -> None:
    goal = Goal(min_sqnr_db=40, objective=Aim.SIZE)
    assert moved(proposals(goal).batch(point(0, 1, 2), ())) == {
        "/layer1": INTEGER,
        "/layer2": INTEGER,
    }


def test_the_unit_that_decides_is_probed_within_a_time_alone() -> None:
    wanted = Goal(max_time=0.8, objective=Aim.ACCURACY)
    assert moved(proposals(wanted).probe(point(1), set())) == {"/layer0": FLOAT}
    assert proposals(wanted).probe(point(1), {"/layer0"}) == ()
    assert proposals(Goal(objective=Aim.ACCURACY)).probe(point(1), set()) == ()
    assert proposals(Goal(max_time=0.8)).probe(point(1), set()) == ()
