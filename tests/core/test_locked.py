from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.core.append_only import AppendOnlyFile, lock, open_journal
from onnxq.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def locks() -> None:
    """Skips where the system has no such locks: Windows."""
    pytest.importorskip("fcntl", exc_type=ImportError)


def test_a_file_is_locked_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("wb") as second:
        lock(first)
        with pytest.raises(BlockingIOError):
            lock(second)
        first.close()
        lock(second)


def test_a_journal_is_one_process_s_at_a_time_and_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "tune.journal"
    with open_journal(path, "tune") as file:
        file.write(b"line")
        with pytest.raises(OutputError, match=r"tune\.journal' is in use: another tune writes"):
            open_journal(path, "tune")
    with open_journal(path, "tune") as file:
        assert file.read() == b"line"


class Written(AppendOnlyFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path, open_journal(path, "tune"))


def test_a_journal_is_free_behind_an_error_in_the_body_and_may_be_closed_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tune.journal"
    with pytest.raises(KeyError, match="of the body"), Written(path) as journal:
        raise KeyError("of the body")
    journal.close()
    with Written(path) as again:
        again.close()
        open_journal(path, "tune").close()


def test_a_folder_that_is_not_there_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="nowhere"):
        open_journal(tmp_path / "nowhere" / "tune.journal", "tune")
