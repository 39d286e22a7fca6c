"""Evaluations of mappings: looked up in the journal, else run, over any Executor.

    evaluations = Evaluations(evaluator, journal)
    score = evaluations(mapping)
    outcomes = evaluations.all(mappings, executor)   in their order, whoever ran them

Scores are the same bit for bit whatever the number of workers: each is a function of the mapping
alone. A run is one mapping that was scored, in this process, another one, or an earlier search
whose journal is gone on with, so that a search that was killed spends as much as one that was not.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from onnxq.core.saved import Saved
from onnxq.errors import ModelError, QConfigError, UnsupportedError, first_line
from onnxq.jobs import in_order
from onnxq.tuning.scoring.metric import MetricError
from onnxq.tuning.scoring.score import Score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor

    from onnxq.qconfig import QConfigMapping
    from onnxq.tuning.evaluation.evaluator import Evaluator
    from onnxq.tuning.evaluation.journal import Journal

REFUSALS = (QConfigError, UnsupportedError, ModelError)
"""Errors that say that a mapping gives no model that runs; others end the search."""
SCORES, REFUSED = "score", "refusal"
"""Kinds of records in the journal."""


@dataclass(frozen=True)
class Refusal(Saved):
    """Reason for which a mapping gives no model that runs."""

    FORMAT: ClassVar[str] = "onnxq refusal 1"
    NOUN: ClassVar[str] = "a refusal"
    ANEW: ClassVar[str] = "Begin a new journal."

    reason: str


class Evaluations:
    """Scores of mappings, each found once.

    Args:
        evaluator: finds them.
        journal: keeps them, each under the samples that the mapping was scored on: those held apart
            have scores of their own, and others to check on have others.
        kind: of the scores in the journal; estimates have another than scores of `quantize`.
    Attributes:
        runs: different mappings that were scored, looked up ones included.
    """

    def __init__(self, evaluator: Evaluator, journal: Journal, kind: str = SCORES) -> None:
        self.evaluator = evaluator
        self.journal = journal
        self._kind = kind
        self._samples = evaluator.baseline.samples.fingerprint
        self._asked: set[str] = set()

    @property
    def runs(self) -> int:
        """Different mappings that were scored."""
        return len(self._asked)

    def __call__(self, mapping: QConfigMapping) -> Score:
        """Score of a mapping."""
        (outcome,) = self.all([mapping])
        if isinstance(outcome, Refusal):
            raise UnsupportedError(outcome.reason)
        return outcome

    def all(
        self, mappings: Sequence[QConfigMapping], executor: Executor | None = None
    ) -> list[Score | Refusal]:
        """Outcomes of mappings, in their order."""
        keys = [f"{self._samples} {key_of(mapping)}" for mapping in mappings]
        self._asked.update(keys)
        lacking = {
            key: mapping
            for key, mapping in zip(keys, mappings, strict=True)
            if self._found(key) is None
        }
        if lacking:
            outcomes = self._run(list(lacking.values()), executor)
            for key, outcome in zip(lacking, outcomes, strict=True):
                kind = self._kind if isinstance(outcome, Score) else REFUSED
                self.journal.append(kind, key, outcome)
        found = [self._found(key) for key in keys]
        return [outcome for outcome in found if outcome is not None]

    def _found(self, key: str) -> Score | Refusal | None:
        score = self.journal.find(self._kind, key, Score)
        return score or self.journal.find(REFUSED, key, Refusal)

    def _run(
        self, mappings: Sequence[QConfigMapping], executor: Executor | None
    ) -> Iterator[Score | Refusal]:
        if executor is None:
            return (outcome_of(self.evaluator, mapping) for mapping in mappings)
        return in_order(
            executor, partial(scoring, self.evaluator), mappings, named=lambda _: "a candidate"
        )


def outcome_of(evaluator: Evaluator, mapping: QConfigMapping) -> Score | Refusal:
    """Score of a mapping, or why there is none."""
    try:
        return evaluator(mapping)
    except MetricError:
        raise
    except REFUSALS as error:
        return Refusal(first_line(error))


def scoring(evaluator: Evaluator) -> Callable[[QConfigMapping], Score | Refusal]:
    """Scores mappings in another process, which the evaluator travels to once."""
    return partial(outcome_of, evaluator)


def key_of(mapping: QConfigMapping) -> str:
    """Hash of a mapping, the same whatever the order of its entries."""
    ordered = dataclasses.replace(
        mapping,
        op_types=dict(sorted(mapping.op_types.items())),
        nodes=dict(sorted(mapping.nodes.items())),
        tensors=dict(sorted(mapping.tensors.items())),
    )
    return hashlib.blake2b(ordered.to_yaml().encode(), digest_size=12).hexdigest()
