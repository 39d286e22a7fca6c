"""Search for a mapping that reaches a goal: changes in batches, each of them measured.

    begin              the best start; PTQ algorithms where accuracy is lacking or is the
                       objective, for they cost no time and no bytes
    lacking accuracy   near the goal, other observers of the whole model; changes that take away the
                       most noise for the time that they cost, as many as should do, at once
    lacking time       changes that save the most time for the noise that they add, likewise
    lacking nothing    changes towards the objective that should keep the bounds, among them those
                       back to the precision that a group began with; for the most accurate within a
                       time, groups one by one whose noise decides, so that it is known and not
                       estimated

Where that ends short of a bound on accuracy, or within one on a metric, whose answers estimates do
not tell, halves find the rest (`back`).

A batch that makes nothing better, or no model, is measured in halves until the changes at fault
are found, which are never tried again. What a batch changed corrects the estimates of its groups.
It ends where no change is left that is worth a run, or with the budget. The same estimates and
scores give the same search, but for `is_late`.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.errors import QConfigError
from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping
from onnxq.tuning.evaluation.evaluations import Refusal
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.bisection import back, fewest, repaired
from onnxq.tuning.search.candidate import Candidate, ConfigChange, MeasuredCandidate
from onnxq.tuning.search.proposals import Batch, Proposals

EvaluateAll = Callable[[Sequence["QConfigMapping"]], "Sequence[Score | Refusal]"]
"""Measures mappings, which may run beside each other; results in their order."""

NEAR_DB = 6.0
"""Distance from the goal at which changes of a whole model are tried: the most that one gave is 5.5
dB (smoothing all-MiniLM-L6-v2, docs/guides/improve.md). Farther off, other noise decides
what one gives.
"""
MOST_FAILURES = 3
"""Batches in a row that change nothing for the better, behind which a search ends: with the halves
that they are measured in, nine runs that found nothing."""
PROBES = 0.25
"""Share of the runs that may go into what groups cost, where nothing else is worth one: with ten, a
network of 8 layers is 0.8 dB from the best at most, without up to 15 (tests/tuning/made_up.py)."""

EXCESS_DB = 6.0
"""Decibels above the bound at which fewer changes of a batch are looked for: twice those that are
worth something where speed is wanted."""


class SearchEnd(enum.Enum):
    """Reason why a search ended, in words."""

    LATE = "the time is up"
    NO_RUN = "no run is left"
    NO_CHANGE = "no change is left that is worth a run"
    NO_GAIN = f"{MOST_FAILURES} batches in a row made nothing better"


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        points: every model that was measured, in order; the first is where it began.
        refused: (changes in words, why) of those that cannot be quantized or do not run; of a
            batch, of the changes in it that are at fault.
    """

    points: tuple[MeasuredCandidate, ...]
    best: MeasuredCandidate
    refused: tuple[tuple[tuple[str, ...], str], ...]
    why: SearchEnd


@dataclass
class LocalSearch:
    """Search from one candidate."""

    proposals: Proposals
    evaluate: EvaluateAll
    whole: Sequence[ConfigChange]
    runs: int
    is_late: Callable[[], bool] = lambda: False
    _points: list[MeasuredCandidate] = field(default_factory=list)
    _refused: dict[tuple[str, ...], str] = field(default_factory=dict)  # changes in words -> why
    _taken: int = 0  # runs, those that gave no model among them
    _closed: set[tuple[str, Precision]] = field(default_factory=set)  # tried alone, for nothing
    _impossible: set[tuple[str, Precision]] = field(default_factory=set)  # alone, and no model
    _probed: set[str] = field(default_factory=set)  # anchors of groups whose noise was asked for
    _is_bisected: bool = field(default=False)  # on the way back, which is gone once

    def begin(
        self, starts: Sequence[Candidate], free: Sequence[ConfigChange] = ()
    ) -> MeasuredCandidate:
        """The best of the starts, with the free changes that help where accuracy is wanted."""
        first, *others = self._measure(starts)
        if first is None:
            why = next(iter(self._refused.values()))
            raise QConfigError(f"the model to start from cannot be made: {why}")
        best = self._best(others, first)
        if free and self._wants_accuracy(best):
            # one by one: the time may be over
            tried = [m for change in free for m in self._with_changes(best, (change,))]
            best = self._best(tried, best)
        return best

    def run(self, best: MeasuredCandidate) -> SearchResult:
        """The way to the goal from a point that `begin` gave."""
        failures = 0
        whole = [change for change in self.whole if change not in best.candidate.whole]
        while self._left > 0:
            self.proposals.estimates.meet(best.candidate, best.score)
            batch: Batch = ()
            refused = len(self._refused)
            missing_db = self.proposals.objective.missing_db(best.score)
            if whole and missing_db <= NEAR_DB and self._wants_accuracy(best):
                found, whole = self._best(self._with_changes(best, whole), best), []
            elif failures < MOST_FAILURES and (batch := self.proposals.batch(best, self._closed)):
                found = self._try(best, batch)
            elif failures < MOST_FAILURES and (probe := self._probe(best)):
                found = probe
            elif (found := self._by_bisection(best)) is best and self._left > 0:
                has_found = failures < MOST_FAILURES
                return self._found(best, SearchEnd.NO_CHANGE if has_found else SearchEnd.NO_GAIN)
            is_failure = found is best and batch and refused == len(self._refused)
            failures = failures + 1 if is_failure else 0
            best = found
        return self._found(best, SearchEnd.LATE if self.is_late() else SearchEnd.NO_RUN)

    def _found(self, best: MeasuredCandidate, why: SearchEnd) -> SearchResult:
        return SearchResult(tuple(self._points), best, tuple(self._refused.items()), why)

    @property
    def _left(self) -> int:
        """Runs that are left; where the search begins is measured however late it is."""
        return 0 if self._taken and self.is_late() else self.runs - self._taken

    def _measure(self, candidates: Sequence[Candidate]) -> list[MeasuredCandidate | None]:
        """The points, in order; None where one is refused or beyond the budget."""
        kept = candidates[: max(self._left, 0)]
        self._taken += len(kept)
        found: list[MeasuredCandidate | None] = [None] * len(candidates)
        scores = self.evaluate([candidate.mapping for candidate in kept])
        for index, (candidate, score) in enumerate(zip(kept, scores, strict=True)):
            if isinstance(score, Refusal):
                self._refused[candidate.words] = score.reason
                continue
            point = MeasuredCandidate(candidate, score)
            self._points.append(point)
            found[index] = point
        return found

    def _is_better(self, one: MeasuredCandidate, other: MeasuredCandidate) -> bool:
        order = self.proposals.objective.order
        return order(one.score) < order(other.score)

    def _best(
        self, points: Sequence[MeasuredCandidate | None], otherwise: MeasuredCandidate
    ) -> MeasuredCandidate:
        """The best of them; the first of equals, which is `otherwise` where none is better."""
        best = otherwise
        for point in points:
            if point is not None and self._is_better(point, best):
                best = point
        return best

    # --- changes of the whole model

    def _wants_accuracy(self, point: MeasuredCandidate) -> bool:
        """Whether more decibels are wanted, however many."""
        objective = self.proposals.objective
        is_aim = objective.goal.objective is Objective.ACCURACY
        return is_aim or objective.missing_db(point.score) > 0

    def _is_enough(self, point: MeasuredCandidate) -> bool:
        """Whether the accuracy is what was asked for, where there is a bound."""
        objective = self.proposals.objective
        accuracy = objective.goal.objective is Objective.ACCURACY
        return objective.bounds_accuracy and not accuracy and not objective.missing_db(point.score)

    def _with_changes(
        self, point: MeasuredCandidate, changes: Sequence[ConfigChange]
    ) -> list[MeasuredCandidate | None]:
        """Points with each change alone, and with all that help where none is enough.

        Of two changes of one aspect, the better one is among those that help. Each is found on the
        samples of the search: more of them than are needed fit these alone.
        """
        alone = self._measure([point.candidate.also(change) for change in changes])
        helping: dict[str, tuple[MeasuredCandidate, ConfigChange]] = {}
        for change, found in zip(changes, alone, strict=True):
            rival = helping.get(change.aspect, (point,))[0]
            if found is not None and self._is_better(found, rival):
                helping[change.aspect] = found, change
        if len(helping) < 2 or self._is_enough(self._best(alone, point)):
            return alone
        together = [change for _, change in helping.values()]
        return [*alone, *self._measure([point.candidate.also(*together)])]

    # --- batches of precisions

    def _try(self, point: MeasuredCandidate, batch: Batch) -> MeasuredCandidate:
        """The best of the point and what a batch makes of it; in halves where that is no better."""
        estimates = self.proposals.estimates
        (found,) = self._measure([point.candidate.with_changes(batch)])
        if found is None:
            return self._withdrawn(point, batch)
        if self.proposals.objective.bounds_accuracy:  # else only their order counts
            estimates.learn(point, batch, found.score)
        estimates.correct(point, batch, found.score)
        if self._is_better(found, point):
            return self._without_excess(point, batch, found)
        if len(batch) == 1:
            self._close(batch)
            return point
        middle = (len(batch) + 1) // 2
        halves = (batch[:middle], batch[middle:])
        parts = self._measure([point.candidate.with_changes(half) for half in halves])
        for half, part in zip(halves, parts, strict=True):
            if part is not None:
                estimates.correct(point, half, part.score)
            if len(half) == 1 and (part is None or not self._is_better(part, point)):
                self._close(half)
        return self._best(parts, point)

    def _without_excess(
        self, point: MeasuredCandidate, batch: Batch, found: MeasuredCandidate
    ) -> MeasuredCandidate:
        """The best of what a batch gave and fewer of its changes, where it gave far too much.

        Estimates that promised too little are of no use for what the next batch may take back.
        """
        objective, least = self.proposals.objective, self.proposals.objective.goal.min_sqnr_db
        if least is None or not objective.missing_db(point.score):
            return found
        if objective.missing_db(found.score) or found.score.worst_db <= least + EXCESS_DB:
            return found
        return self._best([fewest(point, batch, self._measured, objective)], found)

    def _by_bisection(self, point: MeasuredCandidate) -> MeasuredCandidate:
        """The best that halves find, where estimates find no more."""
        objective, goal = self.proposals.objective, self.proposals.objective.goal
        if objective.missing_db(point.score):
            found = repaired(point, self.proposals, self._measured, self._impossible)
            point = self._best([found], point)
        if self._is_bisected or goal.max_drop is None or goal.objective is Objective.ACCURACY:
            return point
        if objective.violation_db(point.score):
            return point
        self._is_bisected = True
        way = self.proposals.back(point, self._impossible)
        return back(point, way, self._measured, self.proposals, lambda: self._left > 0)

    def _measured(self, candidate: Candidate) -> MeasuredCandidate | None:
        return self._measure([candidate])[0]

    def _withdrawn(self, point: MeasuredCandidate, batch: Batch) -> MeasuredCandidate:
        """The best of the point and the parts of a batch that gives no model.

        Changes that give none by themselves are named, and never tried again. Where all parts give
        one, the best of them is where the search goes on: what does not go with it is found next.
        """
        candidate = point.candidate.with_changes(batch)
        if len(batch) == 1:
            self._close(batch)
            self._impossible |= {(change.group.anchor.name, change.precision) for change in batch}
            self._rename(candidate, batch)
        if len(batch) == 1 or self._left <= 0:
            return point
        middle = (len(batch) + 1) // 2
        halves = (batch[:middle], batch[middle:])
        before = self._refused.pop(candidate.words, None)
        parts = self._measure([point.candidate.with_changes(half) for half in halves])
        if all(parts) and before is not None:
            self._refused[candidate.words] = before  # together alone
        best = self._best(parts, point)
        for half, part in zip(halves, parts, strict=True):
            if part is None:
                found = self._withdrawn(point, half)
                best = found if self._is_better(found, best) else best
        return best

    def _rename(self, candidate: Candidate, batch: Batch) -> None:
        """Names a change that is refused by itself, whatever it was tried from."""
        why = self._refused.pop(candidate.words, None)
        if why is not None:
            alone = replace(candidate, precisions={}, whole=()).with_changes(batch)
            self._refused[alone.words or candidate.words] = why

    def _probe(self, point: MeasuredCandidate) -> MeasuredCandidate | None:
        """The best of the point and one that tells the noise of a group; None: enough is known."""
        if len(self._probed) >= PROBES * self.runs:
            return None
        batch = self.proposals.probe(point, self._probed)
        if not batch:
            return None
        self._probed |= {change.group.anchor.name for change in batch}
        (found,) = self._measure([point.candidate.with_changes(batch)])
        if found is not None:
            self.proposals.estimates.correct(point, batch, found.score)
        return self._best([found], point)

    def _close(self, batch: Batch) -> None:
        """Never tries a change of one group again that made nothing better."""
        self._closed |= {(change.group.anchor.name, change.precision) for change in batch}
