"""Journals go on behind their last whole record, and are no one else's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest

from onnxq.core.append_only import AppendOnlyFile, RecordsHead, begin
from onnxq.errors import CalibrationError

if TYPE_CHECKING:
    from io import BufferedRandom
    from pathlib import Path


@dataclass(frozen=True)
class Head(RecordsHead):
    FORMAT: ClassVar[str] = "onnxq test 1"
    NOUN: ClassVar[str] = "a journal of a test"
    of: str


HEAD = Head("this")


def whole(file: BufferedRandom) -> int:
    return file.read().rfind(b"\n") + 1


def written(path: Path, *records: bytes) -> bytes:
    target, file = begin(path, HEAD, "test", whole)
    with AppendOnlyFile(target, file) as journal:
        if not file.tell():
            journal.write(json.dumps(HEAD.to_dict()).encode(), b"\n")
        for record in records:
            journal.write(record, b"\n")
    return path.read_bytes()


def test_a_torn_record_is_cut_off_and_the_next_goes_behind_the_last_whole_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    begun = written(path, b"first")
    path.write_bytes(begun + b"seco")
    assert written(path, b"second") == begun + b"second\n"


def test_a_torn_head_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    begun = written(path)
    path.write_bytes(begun[:25])
    assert written(path) == begun


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a poem\n", "does not begin like a journal"),
        (b'{"format": "onnxq test 1", "of": 3}\n', "first line"),
        (b'{"format": "onnxq test 1", "of": "that"}\n', "something else .of: that, and now this"),
    ],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match=said):
        written(path)
    assert path.read_bytes() == content
