"""Journal of a search: everything that was measured, one JSON line each, in the order of its end.

    with Journal.open(path, head) as journal:
        score = journal.find("score", key, Score)     None: not measured yet
        journal.append("score", key, score)

What the journal has is looked up in place of being measured again, so that a search goes on where
it stopped.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from onnxq.core.append_only import AppendOnlyFile, RecordsHead, begin
from onnxq.core.saved import UNREADABLE, Saved, plain
from onnxq.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedRandom
    from pathlib import Path

Value = TypeVar("Value", bound=Saved)
Records = dict[tuple[str, str], "Mapping[str, object]"]
"""(kind, key) -> plain form of a value."""


@dataclass(frozen=True)
class JournalHead(RecordsHead):
    """First line of a journal: what its measurements are of.

    Attributes:
        metric: its name, and a hash of its file.
        setup: target, format, batch size and whatever else changes a result, in words.
    """

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
