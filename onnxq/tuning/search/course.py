"""Course of a search through its stages: times, sensitivity, descent; and its journal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.core.version import VERSION
from onnxq.ort.version import installed
from onnxq.qconfig import Choice
from onnxq.targets.speedups import PRODUCT_OPS
from onnxq.times.model_times import IN_FLOAT, Times
from onnxq.tuning.defaults import IMPROVE
from onnxq.tuning.evaluating.evaluations import REFUSALS, Evaluations
from onnxq.tuning.evaluating.journal import Journal, JournalHead
from onnxq.tuning.judging.goal import Aim
from onnxq.tuning.judging.plan_forms import forms_of
from onnxq.tuning.judging.score import Score
from onnxq.tuning.judging.standing import Standing, noise_of
from onnxq.tuning.measuring.measure_sensitivity import sensitivity_of
from onnxq.tuning.measuring.measure_times import measure_times, times_of
from onnxq.tuning.moving.coded import CodedMappings
from onnxq.tuning.moving.estimates import Estimates, spread
from onnxq.tuning.moving.kinds import Alike, apart, by_kind, dearest_parts
from onnxq.tuning.moving.moves import (
    PER_TENSOR,
    ActivationObserver,
    ImproveMove,
    WeightScales,
    Within,
    is_per_channel,
)
from onnxq.tuning.moving.part_moves import PartMoves
from onnxq.tuning.moving.position import Point, Position
from onnxq.tuning.moving.proposals import Proposals
from onnxq.tuning.moving.units import units_of
from onnxq.tuning.search.descent import Descent
from onnxq.tuning.search.finalists import best_predicted, judged, reserves, stored_reserve
from onnxq.tuning.search.left_in_float import left_in_float

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from onnxq.qconfig import QConfigMapping
    from onnxq.times import Costs
    from onnxq.times.time_model import Forms
    from onnxq.tuning.evaluating.evaluations import Refusal
    from onnxq.tuning.evaluating.evaluator import Evaluator
    from onnxq.tuning.judging.goal import Goal
    from onnxq.tuning.judging.metric import Metric
    from onnxq.tuning.judging.subject import Subject
    from onnxq.tuning.judging.tuning_samples import TuningSamples
    from onnxq.tuning.measuring.sensitivity import Sensitivity
    from onnxq.tuning.moving.moves import WholeMove
    from onnxq.tuning.moving.units import Unit
    from onnxq.tuning.search.descent import Found, Offers
    from onnxq.tuning.search.finalists import Clock
    from onnxq.tuning.search.left_in_float import LeftInFloat

Step = Callable[[int, int | None], None]
"""Called with (runs done, runs at most) after each of them."""
AGAIN = 2
"""Searches more, where whole runs take longer than predicted, and too long."""
MOST_SHARE = 0.5
"""Share of the runs that the sensitivity takes at most: moves need the others."""
PARTS_SHARE = 0.125
"""Share of the runs that are left, up to which moves of groups are worth a look: as many as moves
of the whole model take, of which they are a finer choice."""
ENTRY_MOVES = (ActivationObserver, WeightScales)
"""Moves that a group may have alone."""
TIMES, HERE = "times", "here"
BY_DEFAULT = "forms as onnxq chooses them"
"""Name of a second beginning, where another choice was asked for."""


def open_journal(
    path: str | Path | None, subject: Subject, samples: TuningSamples, metric: Metric, goal: Goal
) -> Journal:
    """The journal of a search; None: in memory alone.

    Raises:
        CalibrationError: the file is no journal, or of something else.
        OutputError: it cannot be written.
    """
    runtime = ".".join(map(str, installed()))
    head = JournalHead(
        subject.model_hash,
        samples.fingerprint,
        f"{metric.name} {metric.fingerprint}".strip(),
        str(subject.wishes),
        f"onnxq {VERSION}, onnxruntime {runtime}",
        str(goal),
    )
    return Journal.open(path, head)


def times_in(journal: Journal, evaluator: Evaluator, costs: Costs | None) -> Times:
    """Times of the model: of the journal, else of the table, else measured, alone and now."""
    found = journal.find(TIMES, HERE, Times)
    if found is None:
        found = measure_times(evaluator) if costs is None else times_of(evaluator, costs)
        journal.append(TIMES, HERE, found)
    return found


class Course:
    """Course of one search.

    Args:
        evaluations: of mappings, on the samples of the search.
        goal: of the search.
        executor: runs candidates beside each other; None: this process.
        progress: is told of each run.
        clock: times finalists; None: predicted times are all there is.
    """

    def __init__(
        self,
        evaluations: Evaluations,
        goal: Goal,
        executor: Executor | None,
        progress: Step,
        clock: Clock | None = None,
    ) -> None:
        self._evaluations, self._goal, self._clock = evaluations, goal, clock
        self._executor, self._progress = executor, progress
        self._off = 0.0  # of the predicted times, as a share of float's
        self._begun_s = time.monotonic()
        self._spent = 0.0  # runs of the sensitivity
        self._estimating = evaluations
        self._measured: tuple[Alike, ...] = ()
        self._coded: CodedMappings | None = None
        self._proposals: Proposals | None = None

    @property
    def runs(self) -> float:
        """Runs so far; those on fewer samples by their share."""
        return self._spent + self._evaluations.runs

    def _is_late(self) -> bool:
        most = self._goal.max_seconds
        return most is not None and time.monotonic() - self._begun_s > most

    def beginnings(self, asked: QConfigMapping) -> tuple[Position, ...]:
        """Where the search may begin: as asked for; from all in integers, as onnxq chooses, too.

        Where onnxq's own choice gives no model beside what is asked for, it is none of them.

        Raises:
            QConfigError, UnsupportedError, CalibrationError: what is asked for cannot be made.
        """
        quantized = self._evaluations.evaluator.quantized
        plans = {"": quantized(asked).plan}
        if asked.choice is not Choice.BEST:
            with suppress(*REFUSALS):
                plans[BY_DEFAULT] = quantized(asked.set_choice(Choice.BEST)).plan
        units = self.units(asked, list(map(forms_of, plans.values())))
        return tuple(Position(plan.qconfig, units, name=name) for name, plan in plans.items())

    def units(self, asked: QConfigMapping, begun: Sequence[Forms]) -> tuple[Unit, ...]:
        """The units that may be moved: of nodes that `asked` does not name.

        Args:
            asked: what the user wants.
            begun: forms that the search begins with.
        """
        open_forms = asked.without_forms().set_choice(Choice.ALL_INTEGERS)
        prepared = self._evaluations.evaluator.subject.prepared(open_forms)
        return units_of(prepared.model, prepared.decisions, asked, begun)

    def sensitivity(self, asked: QConfigMapping, units: Sequence[Unit]) -> Sensitivity:
        """Cost of each kind alone, all other units being in float, and of parts of the dearest.

        Where there are too few runs for all, kinds with the least weights are not measured.
        """
        kinds = tuple(sorted(by_kind(units), key=lambda kind: -kind.weights))
        coded = CodedMappings(asked, tuple(units))
        self._estimating = self._covering(coded.together)
        found = self._costs(coded, kinds)
        parts = dearest_parts(kinds, {cost.group: cost.noise for cost in found.costs})
        self._measured, self._coded = (*kinds, *parts), coded
        if not parts:
            return found
        more = self._costs(coded, parts)
        costs = sorted((*found.costs, *more.costs), key=lambda cost: cost.worst_db)
        return replace(
            found,
            costs=tuple(costs),
            runs=found.runs + more.runs,
            refused={**found.refused, **more.refused},
        )

    def _covering(self, together: QConfigMapping) -> Evaluations:
        """The evaluations for estimates: with one calibration for all that are parts of that."""
        evaluations = self._evaluations
        try:
            return Evaluations(evaluations.evaluator.covering(together), evaluations.journal)
        except REFUSALS:  # which the sensitivity says
            return evaluations

    def _costs(self, coded: CodedMappings, groups: Sequence[Alike]) -> Sensitivity:
        most = min(MOST_SHARE * self._goal.max_runs, self._goal.max_runs - 1) - self._spent
        found = sensitivity_of(
            self._estimating, coded.alone, groups, coded.together, self._executor, most
        )
        self._spent += found.runs
        return found

    def descend(
        self, starts: Sequence[Position], sensitivity: Sensitivity, moves: Sequence[WholeMove]
    ) -> Found:
        """The way to the goal from the best of the starts, of which the first is asked for.

        Raises:
            QConfigError: the first cannot be made.
        """
        start = starts[0]
        evaluator = self._evaluations.evaluator
        groups = {group.name: group.units for group in self._measured}
        noise = spread({cost.group: cost.noise for cost in sensitivity.costs}, groups)
        forms = {each.name: forms_of(evaluator.quantized(each.start).plan) for each in starts}
        ratio = evaluator.ratio

        known: dict[tuple[object, ...], float | None] = {}  # proposals ask again

        def time_of(position: Position) -> float | None:
            key = position.name, frozenset(position.forms.items())
            if key not in known:
                begun = forms[position.name]
                known[key] = None if ratio is None else ratio(position.node_forms(begun))
            predicted = known[key]
            return None if predicted is None else predicted + self._off

        begun = self._evaluations.all([start.mapping])[0]
        noise_begun = noise_of(begun) if isinstance(begun, Score) else 0.0
        standing = Standing(self._goal, evaluator.baseline.metric, noise_begun)
        proposals = self._proposals = Proposals(standing, Estimates(noise), time_of)

        def search(
            begin: Sequence[Position], moves: Sequence[WholeMove], offers: Offers | None = None
        ) -> Found:
            kept = len(self._beside(start, start)) - 1  # where it begins was measured before
            most = max(1, math.floor(self._goal.max_runs - self.runs) - kept)
            named = [m for m in moves if isinstance(m, ImproveMove) and m.which not in IMPROVE]
            descent = Descent(proposals, self._all, moves, most, self._is_late, offers, named)
            return descent.run(*begin)

        cost_of = {cost.group: cost.noise for cost in sensitivity.costs}
        found = search(starts, moves, self._offers(apart(self._measured, cost_of), moves))
        if self._clock is not None:
            return self._judged(found, standing, search)
        wider = self._with_those_beside(found)
        return replace(wider, best=best_predicted(wider.points, standing))

    def left_in_float(self, best: Point) -> tuple[LeftInFloat, ...]:
        """Layers that `descend` left in float in its best point, and why."""
        return () if self._proposals is None else left_in_float(best, self._proposals)

    def _judged(
        self,
        found: Found,
        standing: Standing,
        search: Callable[[Sequence[Position], Sequence[WholeMove]], Found],
    ) -> Found:
        """The search judged by times of whole runs; where these are longer, it goes on."""
        assert self._clock is not None
        found = judged(found, self._clock, standing)
        for _ in range(AGAIN):
            beyond = self._beyond_prediction(found, standing)
            if beyond <= 0.0:
                break
            self._off += beyond
            again = search([found.best.position], ())
            points = (*found.points, *again.points)
            found = judged(replace(again, points=points), self._clock, standing)
        return judged(self._with_those_beside(found), self._clock, standing)

    def _with_those_beside(self, found: Found) -> Found:
        """The search with what is measured beside it, as far as runs are left."""
        left = max(math.floor(self._goal.max_runs - self.runs), 0)
        positions = self._beside(found.points[0].position, found.best.position)[:left]
        scores = self._all([position.mapping for position in positions])
        beside = [
            Point(position, score)
            for position, score in zip(positions, scores, strict=True)
            if isinstance(score, Score)
        ]
        return replace(found, points=(*found.points, *beside))

    def _beside(self, start: Position, best: Position) -> list[Position]:
        """Positions that are measured beside those of the search, whatever is predicted of them.

        Those that are as fast as float, where time counts; and the best with one scale for each
        weight of its products of matrices, which takes less time by no prediction, where a bound
        says what that may lose. A convolution gains no time by it. Where bytes count, all weights
        stored: codes of activations and kernels of integers have bytes that no prediction counts.
        """
        is_speed = self._goal.objective is Aim.SPEED
        found = stored_reserve(start) if self._goal.objective is Aim.SIZE else []
        if is_speed or self._goal.max_time is not None:
            found = reserves(start)
        if self._clock is None:  # predicted times do not depend on scales
            return found
        base = best.mapping.global_qconfig
        is_fine = base is not None and is_per_channel(base.weight_observer)
        products = by_kind(unit for unit in best.units if _is_product_in_integers(unit, best))
        if is_speed and self._goal.bounds_accuracy and is_fine and products:
            found.append(best.also(*(Within(PER_TENSOR, kind.units) for kind in products)))
        return found

    def _beyond_prediction(self, found: Found, standing: Standing) -> float:
        """Share of float's time that the best takes beyond its prediction, where that is too long.

        The others are then taken to, too. 0 where no runs are left to search on.
        """
        start = found.points[0].position
        left = self._goal.max_runs - self.runs - len(self._beside(start, start))
        score = found.best.score
        if left < 2 or not standing.lacking_time(score) or self._is_late():
            return 0.0
        if score.predicted_time is None or score.time_ratio is None:
            return 0.0
        return score.time_ratio - score.predicted_time

    def _offers(self, groups: Sequence[Alike], moves: Sequence[WholeMove]) -> Offers | None:
        """Offers of moves of the dearest groups; None: they would take too many of the runs."""
        if self._coded is None:
            return None
        within = [move for move in moves if isinstance(move, ENTRY_MOVES)]
        parts = PartMoves(self._estimating, groups, within, self._coded.alone, self._executor)
        if parts.runs > PARTS_SHARE * (self._goal.max_runs - self._spent):
            return None
        self._spent += parts.runs
        return parts.offers

    def _all(self, mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        found = self._evaluations.all(mappings, self._executor)
        self._progress(math.ceil(self.runs), self._goal.max_runs)
        return [self._later(each) if isinstance(each, Score) else each for each in found]

    def _later(self, score: Score) -> Score:
        """The score with as much more time as the best took beyond its prediction."""
        ratio = score.time_ratio
        return score if ratio is None else replace(score, time_ratio=ratio + self._off)


def _is_product_in_integers(unit: Unit, position: Position) -> bool:
    return unit.anchor.op_type in PRODUCT_OPS and position.form(unit) not in IN_FLOAT
