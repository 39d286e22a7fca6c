"""Course of a search through its stages: times, sensitivity, descent; and its journal."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.core.version import VERSION
from onnxq.observers import MinMaxObserver, PercentileObserver
from onnxq.operator import NodeForm
from onnxq.ort.version import installed
from onnxq.qconfig import Choice, QConfig
from onnxq.tuning.descent import Descent
from onnxq.tuning.estimates import Estimates, spread
from onnxq.tuning.finalists import judged, reserves
from onnxq.tuning.journal import Journal, JournalHead
from onnxq.tuning.kinds import by_kind, dearest_parts
from onnxq.tuning.measure_sensitivity import sensitivity_of
from onnxq.tuning.measure_times import measure_times, times_of
from onnxq.tuning.moves import ActivationObserver, ImproveMove, with_form
from onnxq.tuning.position import Point
from onnxq.tuning.proposals import Proposals
from onnxq.tuning.score import Score
from onnxq.tuning.standing import Standing
from onnxq.tuning.time_model import forms_of
from onnxq.tuning.times import Times
from onnxq.tuning.units import units_of

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from onnxq.costs import Costs
    from onnxq.observers import ObserverSpec
    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.descent import Found
    from onnxq.tuning.evaluations import Evaluations, Refusal
    from onnxq.tuning.evaluator import Evaluator
    from onnxq.tuning.finalists import Clock
    from onnxq.tuning.goal import Goal
    from onnxq.tuning.kinds import Alike
    from onnxq.tuning.metric import Metric
    from onnxq.tuning.moves import WholeMove
    from onnxq.tuning.position import Position
    from onnxq.tuning.sensitivity import Sensitivity
    from onnxq.tuning.subject import Subject
    from onnxq.tuning.tuning_samples import TuningSamples
    from onnxq.tuning.units import Unit

Step = Callable[[int, int | None], None]
"""Called with (runs done, runs at most) after each of them."""
OTHER_OBSERVERS = (MinMaxObserver, PercentileObserver)
"""Observers of activations that are tried in place of the default's least squared error."""
AGAIN = 2
"""Searches more, where whole runs take longer than predicted, and too long."""
MOST_SHARE = 0.5
"""Share of the runs beyond which the sensitivity takes no more of them: moves need the others."""
TIMES, HERE = "times", "here"


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
        str(subject.settings),
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
        self._measured: tuple[Alike, ...] = ()

    @property
    def runs(self) -> float:
        """Runs so far; those on fewer samples by their share."""
        return self._spent + self._evaluations.runs

    def _is_late(self) -> bool:
        most = self._goal.max_seconds
        return most is not None and time.monotonic() - self._begun_s > most

    def units(self, asked: QConfigMapping) -> tuple[Unit, ...]:
        """The units that may be moved: of nodes that `asked` does not name."""
        open_forms = asked.without_forms().set_choice(Choice.ALL_INTEGERS)
        prepared = self._evaluations.evaluator.subject.prepared(open_forms)
        return units_of(prepared.model, prepared.decisions, asked)

    def sensitivity(self, asked: QConfigMapping, units: Sequence[Unit]) -> Sensitivity:
        """Cost of each kind alone, all other units being in float, and of parts of the dearest.

        Parts are left out where the kinds took too many of the runs.
        """
        kinds = by_kind(units)
        found = self._costs(asked, units, kinds)
        parts = dearest_parts(kinds, {cost.group: cost.noise for cost in found.costs})
        if self._spent > MOST_SHARE * self._goal.max_runs:
            parts = ()
        self._measured = (*kinds, *parts)
        if not parts:
            return found
        more = self._costs(asked, units, parts)
        costs = sorted((*found.costs, *more.costs), key=lambda cost: cost.worst_db)
        return replace(
            found,
            costs=tuple(costs),
            runs=found.runs + more.runs,
            refused={**found.refused, **more.refused},
        )

    def _costs(
        self, asked: QConfigMapping, units: Sequence[Unit], groups: Sequence[Alike]
    ) -> Sensitivity:
        def alone(group: Alike) -> QConfigMapping:
            mapping, inside = asked, {unit.anchor.name for unit in group.units}
            for unit in units:
                coded = unit.anchor.name in inside
                mapping = with_form(mapping, unit, unit.coded if coded else NodeForm.FLOAT)
            return mapping

        together = asked
        for unit in units:
            together = with_form(together, unit, unit.coded)
        found = sensitivity_of(self._evaluations, alone, groups, together, self._executor)
        self._spent += found.runs
        return found

    def descend(
        self, start: Position, sensitivity: Sensitivity, moves: Sequence[WholeMove]
    ) -> Found:
        """The way from the start to the goal.

        Raises:
            QConfigError: the start itself cannot be made.
        """
        evaluator = self._evaluations.evaluator
        groups = {group.name: group.units for group in self._measured}
        noise = spread({cost.group: cost.noise for cost in sensitivity.costs}, groups)
        forms = forms_of(evaluator.quantized(start.start).plan)
        ratio = evaluator.ratio

        def time_of(position: Position) -> float | None:
            predicted = None if ratio is None else ratio(position.node_forms(forms))
            return None if predicted is None else predicted + self._off

        standing = Standing(self._goal, evaluator.baseline.metric)
        proposals = Proposals(standing, Estimates(noise), time_of)

        def search(begin: Position, moves: Sequence[WholeMove]) -> Found:
            most = max(1, math.floor(self._goal.max_runs - self.runs) - len(self._reserves(start)))
            return Descent(proposals, self._all, moves, most, self._is_late).run(begin)

        found = search(start, moves)
        return found if self._clock is None else self._judged(found, standing, search)

    def _judged(
        self,
        found: Found,
        standing: Standing,
        search: Callable[[Position, Sequence[WholeMove]], Found],
    ) -> Found:
        """What was found, judged by times of whole runs; where these are longer, searched on."""
        assert self._clock is not None
        start = found.points[0].position
        found = judged(found, self._clock, standing)
        for _ in range(AGAIN):
            if not self._is_misled(found, standing):
                break
            again = search(found.best.position, ())
            points = (*found.points, *again.points)
            found = judged(replace(again, points=points), self._clock, standing)
        left = max(math.floor(self._goal.max_runs - self.runs), 0)
        positions = self._reserves(start)[:left]
        scores = self._all([position.mapping for position in positions])
        beside = [
            Point(position, score)
            for position, score in zip(positions, scores, strict=True)
            if isinstance(score, Score)
        ]
        return judged(replace(found, points=(*found.points, *beside)), self._clock, standing)

    def _reserves(self, start: Position) -> list[Position]:
        """Positions that a bound on the time is kept by, whatever else is not."""
        is_bounded = self._goal.max_time is not None and self._clock is not None
        return reserves(start) if is_bounded else []

    def _is_misled(self, found: Found, standing: Standing) -> bool:
        """Whether the best takes longer than predicted, and too long; the others are then taken to.

        Only where runs are left to search on.
        """
        left = self._goal.max_runs - self.runs - len(self._reserves(found.points[0].position))
        if left < 2 or not standing.lacking_time(found.best.score) or self._is_late():
            return False
        score = found.best.score
        if score.predicted_time is None or score.time_ratio is None:
            return False
        more = score.time_ratio - score.predicted_time
        self._off += more
        return more > 0

    def _all(self, mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        found = self._evaluations.all(mappings, self._executor)
        self._progress(math.ceil(self.runs), self._goal.max_runs)
        return [self._later(each) if isinstance(each, Score) else each for each in found]

    def _later(self, score: Score) -> Score:
        """The score with as much more time as the best took beyond its prediction."""
        ratio = score.time_ratio
        return score if ratio is None else replace(score, time_ratio=ratio + self._off)


def moves_of_the_whole(asked: QConfigMapping, improve: Sequence[str]) -> list[WholeMove]:
    """Moves of a whole model: other observers of activations, and improvements of weights.

    Args:
        asked: where the search begins.
        improve: names of improvements that may be used.
    """
    improvements = [ImproveMove(name) for name in improve if name not in asked.improve]
    return [*map(ActivationObserver, _other_observers(asked)), *improvements]


def _other_observers(asked: QConfigMapping) -> list[ObserverSpec]:
    """Observers of activations other than the default's, for codes of the same type."""
    base = asked.global_qconfig
    if not isinstance(base, QConfig):
        return []
    dtype = base.activation_observer().dtype
    specs = [kind.with_args(dtype=dtype) for kind in OTHER_OBSERVERS]
    return [spec for spec in specs if spec.name != base.activation_observer.name]
