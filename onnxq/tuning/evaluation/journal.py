"""Journal of a search: everything that was measured, one JSON line each, in the order of its end.

    with Journal.open(path, head) as journal:
        score = journal.find("score", key, Score)     None: not measured yet
        journal.append("score", key, score)

A line is on the disk before the next measurement begins. A process that is killed leaves whole
lines, and perhaps the start of one, which the next `open` cuts off. What the journal has is looked
up in place of being measured again, so that a search goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

from onnxq.core.append_only import OpenJournal, open_journal
from onnxq.core.atomic import as_output_error, check_writable
from onnxq.core.regular import why_no_file
from onnxq.core.saved import UNREADABLE, Saved, plain
from onnxq.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from io import BufferedRandom

Value = TypeVar("Value", bound=Saved)
ANEW = "Give another file, or remove this one to begin anew."


@dataclass(frozen=True)
class JournalHead(Saved):
    """First line of a journal: what its measurements are of.

    Attributes:
        model_hash: of the canonical float model.
        samples: fingerprint of the samples that are searched on.
        metric: its name, and a hash of its file.
        setup: target, format, batch size and whatever else changes a result, in words.
        versions: of onnxq and of ONNX Runtime.
        goal: of the search that began it; a later one may have another.
    """

    FORMAT: ClassVar[str] = "onnxq journal 1"
    NOUN: ClassVar[str] = "a journal"
    ANEW: ClassVar[str] = ANEW

    model_hash: str
    samples: str
    metric: str
    setup: str
    versions: str
    goal: str

    def differences(self, other: JournalHead) -> list[str]:
        """Names of the fields, the goal aside, that differ."""
        names = [f.name for f in dataclasses.fields(self) if f.name != "goal"]
        return [name for name in names if getattr(self, name) != getattr(other, name)]


BEGINNING = json.dumps({"format": JournalHead.FORMAT}).encode().removesuffix(b"}")
"""First bytes of every journal."""


class Journal(OpenJournal):
    """Measurements of one search that can go on after any end of its process.

    Args:
        head: what the measurements are of.
        records: (kind, key) -> plain form of a value, of those measured before.
        file: to append lines to; None: the journal lives in memory alone.

    Attributes:
        head: as given.
    """

    def __init__(
        self,
        head: JournalHead,
        records: Mapping[tuple[str, str], Mapping[str, object]] | None = None,
        file: BufferedRandom | None = None,
    ) -> None:
        self.head = head
        self._records = dict(records or {})
        self._file = file

    @classmethod
    def open(cls, path: str | Path | None, head: JournalHead) -> Self:
        """The journal in that file, begun where there is none.

        Args:
            path: of the file; None: in memory alone.
            head: of the search at hand.

        Raises:
            CalibrationError: the file is no journal, is damaged before its last line, or is of
                another model, other samples, another metric, setup or version.
            OutputError: the file cannot be written, or another search writes to it.
        """
        if path is None:
            return cls(head)
        target = check_writable(path)
        first, records, length = _read(target)
        if first is not None and (apart := first.differences(head)):
            shown = "; ".join(
                f"{name}: {getattr(first, name)}, and now {getattr(head, name)}" for name in apart
            )
            raise CalibrationError(f"journal '{path}' is of something else ({shown}). {ANEW}")
        file = open_journal(target, "tune")
        first, records, length = _read(target)  # what was written until it was ours
        with as_output_error(target):
            file.truncate(length)
            file.seek(length)
        made = cls(head, records, file)
        if first is None:
            made._write(head.to_dict())
        return made

    def find(self, kind: str, key: str, wanted: type[Value]) -> Value | None:
        """The value of that kind and key; None: it was not measured yet.

        Args:
            kind: of the value: "score", "times".
            key: names what was measured.
            wanted: class of the value.

        Raises:
            CalibrationError: an altered file holds another value there.
        """
        found = self._records.get((kind, key))
        return None if found is None else wanted.from_dict(found)

    def append(self, kind: str, key: str, value: Saved) -> None:
        """Adds a measurement; it is on the disk when this returns.

        Raises:
            OutputError: the disk is full.
        """
        record = value.to_dict()
        self._records[kind, key] = record
        self._write({"kind": kind, "key": key, "value": record})

    def __len__(self) -> int:
        return len(self._records)

    def _write(self, data: Mapping[str, object]) -> None:
        if self._file is None:
            return
        line = json.dumps(plain(data), allow_nan=False).encode() + b"\n"
        with as_output_error(Path(str(getattr(self._file, "name", "journal")))):
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())


def _read(
    path: Path,
) -> tuple[JournalHead | None, dict[tuple[str, str], Mapping[str, object]], int]:
    """(the head, records, bytes of the whole lines); no head where no line is whole.

    Raises:
        CalibrationError: a line before the last is none of a journal's; or there is but one, torn,
            that is none: what is torn would be cut off.
    """
    if not path.exists():
        return None, {}, 0
    if why := why_no_file(path):
        raise CalibrationError(f"journal '{path}': {why}. {ANEW}")
    whole, _, torn = path.read_bytes().rpartition(b"\n")
    if not whole and torn[: len(BEGINNING)] != BEGINNING[: len(torn)]:
        raise CalibrationError(f"journal '{path}': it does not begin like a journal. {ANEW}")
    lines = whole.splitlines() if whole else []
    records: dict[tuple[str, str], Mapping[str, object]] = {}
    head = None
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if head is None:
                head = JournalHead.from_dict(data)
                continue
            records[str(data["kind"]), str(data["key"])] = dict(data["value"])
        except UNREADABLE as error:
            raise CalibrationError(
                f"journal '{path}', line {number}: not a line of a journal ({error!r:.200}). {ANEW}"
            ) from error
    return head, records, len(whole) + 1 if whole else 0
