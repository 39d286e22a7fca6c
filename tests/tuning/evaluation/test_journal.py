from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from onnxq.errors import CalibrationError, OutputError
from onnxq.times.model_times import Times
from onnxq.tuning.evaluation.evaluations import Journal, JournalHead
from onnxq.tuning.scoring.score import Score

if TYPE_CHECKING:
    from pathlib import Path

HEAD = JournalHead("model", "samples", "sqnr", "portable, qdq", "onnxq 1, onnxruntime 2")
SCORE = Score(1.5, {"y": 20.0}, 100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """File of a journal with two scores."""
    file = tmp_path / "tune.journal"
    with Journal.open(file, HEAD) as journal:
        journal.append("score", "a", SCORE)
        journal.append("score", "b", dataclasses.replace(SCORE, metric=2.5))
    return file


def test_what_was_measured_is_found_by_the_next_search(path: Path) -> None:
    with Journal.open(path, HEAD) as journal:
        assert journal.find("score", "a", Score) == SCORE
        assert journal.find("score", "c", Score) is None
        assert journal.find("times", "a", Times) is None
        assert len(journal) == 2


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_dropped_and_the_rest_goes_on(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal.open(path, HEAD) as journal:
        assert journal.find("score", "a", Score) == SCORE
        assert journal.find("score", "b", Score) is None
        journal.append("score", "c", SCORE)
    with Journal.open(path, HEAD) as journal:
        assert journal.find("score", "c", Score) == SCORE
        assert len(journal) == 2


def test_a_torn_head_begins_anew(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])
    with Journal.open(path, HEAD) as journal:
        assert len(journal) == 0
        journal.append("score", "a", SCORE)
    with Journal.open(path, HEAD) as journal:
        assert len(journal) == 1


@pytest.mark.parametrize("field", ["model_hash", "samples", "metric", "setup", "versions"])
def test_a_journal_of_something_else_is_refused(path: Path, field: str) -> None:
    with pytest.raises(CalibrationError, match=f"{field}: .*, and now another"):
        Journal.open(path, dataclasses.replace(HEAD, **{field: "another"}))


def test_a_damaged_line_in_the_middle_is_named(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"nonsense\n" + lines[2])
    with pytest.raises(CalibrationError, match="line 2: not a line of a journal"):
        Journal.open(path, HEAD)


def test_a_file_of_another_layer_type_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x0a\n\x12\x00\n")
    with pytest.raises(CalibrationError, match="does not begin like a journal"):
        Journal.open(tmp_path / "model.onnx", HEAD)


def test_an_altered_value_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"metric": 1.5', b'"metric": "x"'))
    with Journal.open(path, HEAD) as journal, pytest.raises(CalibrationError, match="a score"):
        journal.find("score", "a", Score)


def test_without_a_file_it_keeps_what_it_was_told() -> None:
    with Journal.open(None, HEAD) as journal:
        journal.append("score", "a", SCORE)
        assert journal.find("score", "a", Score) == SCORE


WRITER = """
import itertools, sys
from onnxq.tuning.evaluation.evaluations import Journal, JournalHead
from onnxq.tuning.scoring.score import Score
head = JournalHead("model", "samples", "sqnr", "portable, qdq", "onnxq 1, onnxruntime 2")
with Journal.open(sys.argv[1], head) as journal:
    for number in itertools.count():
        journal.append("score", str(number), Score(float(number), {"y": 20.0}, 100))
"""


def test_a_killed_process_leaves_every_line_that_it_finished(tmp_path: Path) -> None:
    path = tmp_path / "killed.journal"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as process:
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    whole = path.read_bytes().count(b"\n") - 1
    with Journal.open(path, HEAD) as journal:
        assert len(journal) == whole >= 4
        for number in range(whole):
            found = journal.find("score", str(number), Score)
            assert found is not None
            assert found.metric == number


def test_a_journal_that_another_search_writes_to_is_refused_until_its_end(path: Path) -> None:
    with Journal.open(path, HEAD), pytest.raises(OutputError, match="another tune writes"):
        Journal.open(path, HEAD)
    with Journal.open(path, HEAD) as journal:
        assert len(journal) == 2


def test_a_full_disk_is_said_where_the_journal_stops(path: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
    try:
        with (
            pytest.raises(OutputError, match="limit on the size of files"),
            Journal.open(path, HEAD) as journal,
        ):
            journal.append("score", "c", SCORE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with Journal.open(path, HEAD) as journal:
        assert len(journal) == 2
