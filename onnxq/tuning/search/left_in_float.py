"""Layers that a search left in float: what they would change in integers, and why they do not.

It answers two questions about the chosen model: why it keeps more accuracy than was asked for, and
why nothing of it is quantized at all.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.operator import Precision
from onnxq.times.model_times import IN_FLOAT
from onnxq.tuning.scoring.objective_function import FARTHEST_DB
from onnxq.tuning.search.candidate import MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.proposals import LEAST_SAVING, Proposals
from onnxq.tuning.search.quantization_groups import QuantizationGroup, by_layer_type

LOST_DB = -FARTHEST_DB / 2
"""Decibels of a lost output: those of layer_sets that lose all by themselves are -FARTHEST_DB."""


class WhyFloat(enum.Enum):
    """Reason why a layer type computes in float, in words."""

    SLOWER = "slower in integers"
    BELOW_BOUND = "below the bound in integers"
    LESS_ACCURATE = "less accurate in integers than where it began"
    SAVES_LITTLE = f"saves less than {LEAST_SAVING:g} of float's time"
    NOT_FOUND = "no gain was found in these runs"


@dataclass(frozen=True, slots=True)
class LeftInFloat:
    """A layer type that computes in float, beside the same in integers.

    Attributes:
        time: share of float's time that integers would add, as predicted; negative: they save it.
        db: least SQNR of all outputs that is expected then.
    """

    group: str
    time: float
    db: float
    why: WhyFloat


def left_in_float(point: MeasuredCandidate, proposals: Proposals) -> tuple[LeftInFloat, ...]:
    """Kinds that a search for speed left in float where it keeps its bounds; most time first."""
    objective = proposals.objective
    if objective.goal.objective is not Objective.SPEED or objective.violation_db(point.score) > 0:
        return ()
    looked = _Look(point, proposals)
    floats = [group for group in point.candidate.groups if looked.is_open(group)]
    if not floats or looked.now is None:
        return ()
    by_reason: dict[WhyFloat, list[QuantizationGroup]] = {}
    for group in floats:
        by_reason.setdefault(looked.at([group], group.layer_type).why, []).append(group)
    layer_sets = [alike for groups in by_reason.values() for alike in by_layer_type(groups)]
    found = [looked.at(alike.groups, alike.name) for alike in layer_sets]
    return tuple(sorted(found, key=lambda each: each.time))


class _Look:
    """Look at layers of a point, as they would be in integers."""

    def __init__(self, point: MeasuredCandidate, proposals: Proposals) -> None:
        self._point, self._proposals = point, proposals
        self._allowed = proposals.objective.noise_allowed(point.score)
        self.now = proposals.time_of(point.candidate)
        proposals.estimates.meet(point.candidate, point.score)

    def is_open(self, group: QuantizationGroup) -> bool:
        """Whether it computes in float, and could compute in integers."""
        return (
            self._point.candidate.precision(group) in IN_FLOAT
            and group.lowest_precision not in IN_FLOAT
        )

    def at(self, groups: Sequence[QuantizationGroup], name: str) -> LeftInFloat:
        """The layers in the precision with integers that takes least time."""
        precisions = [precision for precision in groups[0].precisions if precision not in IN_FLOAT]
        return min(
            (self._in(groups, precision, name) for precision in precisions),
            key=lambda look: look.time,
        )

    def _in(
        self, groups: Sequence[QuantizationGroup], precision: Precision, name: str
    ) -> LeftInFloat:
        there = self._point.candidate.with_changes(
            PrecisionChange(group, precision) for group in groups
        )
        time = (self._proposals.time_of(there) or 0.0) - (self.now or 0.0)
        noise = self._proposals.estimates.total(there)
        db = -10 * math.log10(noise) if noise > 0 else math.inf
        if db < LOST_DB:
            db = -math.inf
        return LeftInFloat(name, time, db, self._why(time, noise))

    def _why(self, time: float, noise: float) -> WhyFloat:
        if time >= 0:
            return WhyFloat.SLOWER
        if noise > self._allowed:
            is_bounded = self._proposals.objective.bounds_accuracy
            return WhyFloat.BELOW_BOUND if is_bounded else WhyFloat.LESS_ACCURATE
        return WhyFloat.SAVES_LITTLE if -time < LEAST_SAVING else WhyFloat.NOT_FOUND
