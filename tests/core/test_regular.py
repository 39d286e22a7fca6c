from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from onnxq.core.regular import why_no_file


def test_a_file_and_a_link_to_one_are_regular(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    assert (why_no_file(tmp_path / "x"), why_no_file(tmp_path / "link")) == ("", "")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "there is no such file"),
        ("folder", "it is a folder"),
        ("pipe", "it is a named pipe"),
        ("zero", "it is a device"),
        ("dangling", "it is a link to what is not there"),
        ("loop", "Too many levels of symbolic links"),
        ("socket", "it is a socket"),
        ("n" * 5000, "File name too long"),
        ("a\0b", "embedded null byte"),
    ],
)
def test_what_is_no_regular_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("zero").symlink_to("/dev/zero")
    Path("dangling").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        assert why_no_file(Path(name)).startswith(why)
