from __future__ import annotations

import dataclasses
import os
import stat
import tempfile
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import pytest

from onnxq.core.atomic import (
    Owner,
    as_output_error,
    check_writable,
    remove_temporary,
    temporary,
    temporary_folder,
    this_process,
    write_atomically,
)
from onnxq.errors import OutputError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_content_is_there_at_once_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_a_plain_new_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", lambda file: file.write(b""))
    (tmp_path / "b").write_bytes(b"")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_an_error_of_the_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def fail(file: BinaryIO) -> NoReturn:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_an_output_error(tmp_path: Path) -> None:
    def full(_file: BinaryIO) -> NoReturn:
        raise OSError(28, "No space left on device")

    said = (
        r"a.bin' cannot be written: No space left on device: \S+ .B were free, 5.00 kB are needed"
    )
    with pytest.raises(OutputError, match=said):
        write_atomically(tmp_path / "a.bin", full, lambda: 5000)
    assert not list(tmp_path.iterdir())


def test_an_error_of_a_temporary_file_names_the_one_that_it_is_for(tmp_path: Path) -> None:
    said = rf"'{tmp_path / 'a.bin'}' cannot be written"
    with (
        temporary(tmp_path / "a.bin") as part,
        pytest.raises(OutputError, match=said),
        as_output_error(part),
    ):
        raise OSError(13, "Permission denied")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.bin"
    link.symlink_to(tmp_path / "real" / "a.bin")
    write_atomically(link, lambda file: file.write(b"new"))
    assert link.is_symlink()
    assert (tmp_path / "real" / "a.bin").read_bytes() == b"new"


def test_check_writable_refuses_a_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder; give a file name"):
        check_writable(tmp_path)


def test_check_writable_refuses_a_pipe_and_leaves_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OutputError, match=r"pipe' cannot be written: it is a device, pipe"):
            write_atomically(tmp_path / name, lambda file: file.write(b"x"))
    assert (tmp_path / "pipe").is_fifo()


def test_check_writable_refuses_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"folder '.*nowhere' does not exist"):
        check_writable(tmp_path / "nowhere" / "m.onnx")


def test_check_writable_refuses_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(OutputError, match="does not exist"):
        check_writable(tmp_path / "f" / "m.onnx")


def test_check_writable_refuses_a_folder_that_takes_no_files() -> None:
    folder = "/proc" if os.geteuid() == 0 else "/"  # root may write everywhere else
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable(f"{folder}/model.onnx")


def test_check_writable_leaves_an_existing_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    assert check_writable(path) == path
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_very_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".onnx")
    write_atomically(path, lambda file: file.write(b"x"))
    assert path.read_bytes() == b"x"


def test_a_name_that_no_file_may_have_is_an_output_error(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 300 + ".onnx")
    with pytest.raises(OutputError, match=r"cannot be written: File name too long"):
        check_writable(path)
    with pytest.raises(OutputError, match=r"cannot be written: File name too long"):
        write_atomically(path, lambda file: file.write(b"x"))
    with pytest.raises(OutputError, match=r"cannot be written: File name too long"):
        check_writable(tmp_path / ("f" * 300) / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_name_whose_bytes_are_too_many_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written: File name too long"):
        check_writable(tmp_path / ("\N{GREEK SMALL LETTER MU}" * 130 + ".onnx"))


def test_a_long_name_of_wide_characters_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("\N{GREEK SMALL LETTER MU}" * 120 + ".onnx")
    write_atomically(path, lambda file: file.write(b"x"))
    assert path.read_bytes() == b"x"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_that_leads_to_itself_is_an_output_error(tmp_path: Path) -> None:
    link = tmp_path / "m.onnx"
    link.symlink_to(link)
    with pytest.raises(OutputError, match="cannot be written"):
        check_writable(link)


def test_the_permissions_of_a_file_that_was_there_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    path.chmod(0o664)
    write_atomically(path, lambda file: file.write(b"new"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_a_stream_is_no_file(name: str) -> None:
    with pytest.raises(OutputError, match=r"cannot be written: .*Give the name of a file"):
        check_writable(name)


def _left_by(owner: Owner, folder: Path, target: str = "a.bin") -> Path:
    path = folder / f".{target}.{owner}.0123456789abcdef.tmp"
    path.write_bytes(b"half")
    return path


def test_the_next_writing_removes_what_a_dead_process_left(tmp_path: Path) -> None:
    alive = this_process()
    left = _left_by(dataclasses.replace(alive, began=alive.began + 1), tmp_path)  # a pid used anew
    kept = {
        _left_by(alive, tmp_path),
        _left_by(dataclasses.replace(alive, host="elsewhere", began=1), tmp_path),
        _left_by(dataclasses.replace(alive, began=1), tmp_path, "other.bin"),
    }
    write_atomically(tmp_path / "a.bin", lambda file: file.write(b"new"))
    assert not left.exists()
    assert set(tmp_path.iterdir()) == {*kept, tmp_path / "a.bin"}


def test_a_temporary_file_names_its_owner(tmp_path: Path) -> None:
    with temporary(tmp_path / "a.bin") as part:
        _, _, host_and_pid = part.name.partition(".a.bin.")
        assert Owner.parse(host_and_pid.partition(".")[0]) == this_process()


def test_temporary_folders_are_removed_and_so_are_those_of_the_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = tmp_path / f"onnxq-{dataclasses.replace(this_process(), began=1)}.0123456789abcdef"
    dead.mkdir()
    (dead / "optimized.onnx").write_bytes(b"x")
    with temporary_folder() as folder:
        (folder / "x").write_bytes(b"x")
        assert list(tmp_path.iterdir()) == [folder]
    assert not list(tmp_path.iterdir())


def test_what_an_exception_let_stand_is_removed_at_the_end(tmp_path: Path) -> None:
    kept = temporary(tmp_path / "a.bin")  # never left, as if interrupted on the way out
    kept.__enter__().write_bytes(b"half")
    remove_temporary()
    assert not list(tmp_path.iterdir())
