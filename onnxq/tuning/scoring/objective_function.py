"""Objective function of a search: what a score lacks of a goal, and how good it is beyond."""

import math
from dataclasses import dataclass

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.observers.tensor_noise import noise_at
from onnxq.tuning.scoring.goal import Goal
from onnxq.tuning.scoring.score import Score

MARGIN_DB = 0.8
"""Distance from the bound that a search keeps: two models of three have at most so many decibels
less on samples held apart than on those that they were found on (scripts/tune_margins.py)."""
TIME_ERROR = 0.03
"""Share of float's time that is not known of a time: predictions are off by as much in the median,
whole runs in turns by half of it, by a third more at nine of ten (scripts/tune_margins.py)."""
MARGIN_DROP = 0.1
"""The same of a metric, as a share of the drop that is allowed."""
DB_OF_TIME = MARGIN_DB / TIME_ERROR
"""Decibels that weigh as much as the whole time of the float model, where both are lacking: what is
not known of the one weighs as much as what is not known of the other."""
SPARE_DB = 3.0
"""Decibels above the bound that are worth something where speed is wanted: half the noise."""
TIME_OF_DB = TIME_ERROR / SPARE_DB
"""Share of float's time that each of them is worth: they are not given away for a time that may be
none."""
FARTHEST_DB = 200.0
"""Decibels that stand for all more of them, up to no error at all."""


def noise_of(score: Score) -> float:
    """Power of the error over that of the numbers, at the worst output."""
    return finite_noise_at(score.worst_db)


def finite_noise_at(db: float) -> float:
    """Noise over signal, which sums and ratios of estimates can be made of: never 0, never inf."""
    return noise_at(min(max(db, -FARTHEST_DB), FARTHEST_DB))


@dataclass(frozen=True, slots=True)
class ObjectiveFunction:
    """A goal, and the float model's metric that drops are counted from."""

    goal: Goal
    float_metric: float
    begun_noise: float = 0.0

    @property
    def bounds_accuracy(self) -> bool:
        """Whether the goal has a bound on accuracy."""
        return self.goal.bounds_accuracy

    def missing_db(self, score: Score) -> float:
        """Decibels of accuracy that it lacks; of a metric, those that the drop is worth."""
        violation_db = 0.0
        if self.goal.min_sqnr_db is not None:
            worst = max(score.worst_db, -FARTHEST_DB)
            violation_db = max(violation_db, self.goal.min_sqnr_db + MARGIN_DB - worst)
        if self.goal.max_drop is not None:
            violation_db = max(violation_db, self._dropped_db(self.float_metric - score.metric))
        return violation_db

    def _dropped_db(self, drop: float) -> float:
        """Decibels that a drop is too much: errors of a metric grow as those of its numbers do."""
        assert self.goal.max_drop is not None
        allowed = self.goal.max_drop * (1 - MARGIN_DROP)
        if drop <= allowed:
            return 0.0
        least = max(allowed, drop / 4)  # no step is more than 12 dB, so that one to 0 is finite
        return max(20.0 * math.log10(drop / least), 1.0)

    def excess_time(self, score: Score) -> float:
        """Share of float's time that it takes beyond the bound."""
        if self.goal.max_time is None:
            return 0.0
        return min(score.time_beyond(self.goal.max_time), 1.0)

    def violation_db(self, score: Score) -> float:
        """Sum of all that it lacks, in decibels; 0: it keeps the bounds."""
        return self.missing_db(score) + DB_OF_TIME * self.excess_time(score)

    def value(self, score: Score) -> float:
        """Quantity that the goal wants least: time, bytes, or the noise at the worst output."""
        match self.goal.objective:
            case Objective.SPEED:
                time = math.inf if score.time_ratio is None else score.time_ratio
                return time - self.spare(score.worst_db)
            case Objective.SIZE:
                return float(score.size_bytes)
        return noise_of(score)

    def spare(self, db: float) -> float:
        """Share of float's time that the decibels above the bound are worth."""
        if self.goal.min_sqnr_db is None:
            return 0.0
        above = db - self.goal.min_sqnr_db - MARGIN_DB
        return min(max(above, 0.0), SPARE_DB) * TIME_OF_DB

    def order(self, score: Score) -> tuple[float, float, float]:
        """Key by which scores are sorted, the best first."""
        return self.violation_db(score), self.value(score), -score.worst_db

    def target_noise(self, score: Score) -> float:
        """Noise at which the bounds on accuracy are expected to be kept."""
        return noise_of(score) * noise_at(self.missing_db(score))

    def noise_allowed(self, score: Score) -> float:
        """Noise up to which they are expected to be kept, from a score that keeps them."""
        if self.goal.min_sqnr_db is not None and self.goal.max_drop is None:
            return noise_at(self.goal.min_sqnr_db + MARGIN_DB)
        if not self.bounds_accuracy:
            # nobody said how much may be lost: nothing of what the search began with
            return max(noise_of(score), self.begun_noise)
        # of a metric: a step of 3 dB, from there or ahead of where it began, which is measured then
        return max(2.0 * noise_of(score), self.begun_noise / 2.0)
