"""Evaluations of mappings: looked up in the journal, else run, over any Executor.

    evaluations = Evaluations(evaluator, journal)
    score = evaluations(mapping)
    outcomes = evaluations.all(mappings, executor)   in their order, whoever ran them

Scores are the same bit for bit whatever the number of workers: each is a function of the mapping
alone. A run is one mapping that was scored, in this process, another one, or an earlier search
whose journal is gone on with, so that a search that was killed spends as much as one that was not.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from io import BufferedRandom
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from onnxq.core.append_only import AppendOnlyFile, RecordsHead, begin
from onnxq.core.saved import UNREADABLE, Saved, plain
from onnxq.errors import CalibrationError, ModelError, QConfigError, UnsupportedError, first_line
from onnxq.jobs import in_order
from onnxq.qconfig import QConfigMapping
from onnxq.tuning.evaluation.evaluator import Evaluator
from onnxq.tuning.scoring.metric import MetricError
from onnxq.tuning.scoring.score import Score

Value = TypeVar("Value", bound=Saved)
Records = dict[tuple[str, str], "Mapping[str, object]"]
"""(kind, key) -> plain form of a value."""


@dataclass(frozen=True)
class JournalHead(RecordsHead):
    """First line of a journal: what its measurements are of."""

    FORMAT: ClassVar[str] = "onnxq journal 1"
    NOUN: ClassVar[str] = "a journal"

    model_hash: str
    samples: str
    metric: str
    setup: str
    versions: str


class Journal(AppendOnlyFile):
    """Measurements of one search that can go on after any end of its process."""

    def __init__(
        self,
        path: Path | None = None,
        file: BufferedRandom | None = None,
        records: Records | None = None,
    ) -> None:
        super().__init__(path, file)
        self._records = dict(records or {})

    @classmethod
    def open(cls, path: str | Path | None, head: JournalHead) -> Self:
        """The journal in that file, begun where there is none."""
        if path is None:
            return cls()
        records: Records = {}

        def whole(file: BufferedRandom) -> int:
            lines, _, _ = file.read().rpartition(b"\n")
            records.update(_records(lines.splitlines()[1:], path))
            return len(lines) + 1 if lines else 0

        target, file = begin(path, head, "tune", whole)
        made = cls(target, file, records)
        if not file.tell():
            made.write(_line(head.to_dict()))
        return made

    def find(self, kind: str, key: str, wanted: type[Value]) -> Value | None:
        """The value of that kind and key; None: it was not measured yet."""
        found = self._records.get((kind, key))
        return None if found is None else wanted.from_dict(found)

    def append(self, kind: str, key: str, value: Saved) -> None:
        """Adds a measurement; it is on the disk when this returns."""
        record = value.to_dict()
        self._records[kind, key] = record
        self.write(_line({"kind": kind, "key": key, "value": record}))

    def __len__(self) -> int:
        return len(self._records)


def _line(data: Mapping[str, object]) -> bytes:
    return json.dumps(plain(data), allow_nan=False).encode() + b"\n"


def _records(lines: list[bytes], path: str | Path) -> Records:
    """Records of the lines behind the first."""
    found: Records = {}
    for number, line in enumerate(lines, 2):
        try:
            data = json.loads(line)
            found[str(data["kind"]), str(data["key"])] = dict(data["value"])
        except UNREADABLE as error:
            raise CalibrationError(
                f"journal '{path}', line {number}: not a line of a journal ({error!r:.200}). "
                f"{JournalHead.ANEW}"
            ) from error
    return found


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
