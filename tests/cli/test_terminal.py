"""Terminals, pipes and shells as docs/reference/command_line.md describes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")  # Windows has none

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "onnxq")


def piped(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The outcome of a command whose stdout and stderr are pipes."""
    return subprocess.run(
        [*COMMAND, *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


def on_terminal(*words: str, **variables: str) -> str:
    """The text that a command writes on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **variables}
    with subprocess.Popen([*COMMAND, *words], env=environment, stdout=theirs, stderr=theirs):
        os.close(theirs)
        text = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end was closed
                break
            if not chunk:
                break
            text += chunk
    os.close(ours)
    return text.decode()


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """Nothing that a developer's own terminal asks for."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        os.environ.pop(name, None)
    return {}


@pytest.mark.usefixtures("variables")
def test_a_pipe_gets_no_control_characters() -> None:
    done = piped("targets")
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())


@pytest.mark.usefixtures("variables")
def test_a_terminal_gets_a_table_that_fits_and_control_characters_unless_it_is_dumb() -> None:
    text = on_terminal("targets")
    assert "\x1b[1m" in text  # names of columns
    plain = on_terminal("targets", TERM="dumb", NO_COLOR="1")
    assert "\x1b" not in plain
    assert max(len(line.rstrip()) for line in plain.splitlines()) <= 80


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    "shell", ["bash", *(pytest.param(s, marks=pytest.mark.nightly) for s in ("zsh", "fish"))]
)
def test_each_shell_gets_a_script_for_completion(shell: str) -> None:
    assert "_ONNXQ_COMPLETE" in piped(_ONNXQ_COMPLETE=f"{shell}_source").stdout


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("onnxq cr", "cross-check"),
        ("onnxq quantize --exc", "--exclude"),
        ("onnxq inspect --target x86-v", "x86-vnni"),
    ],
)
def test_commands_options_and_targets_are_completed(line: str, found: str) -> None:
    words = line.split()
    done = piped(_ONNXQ_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    assert found in done.stdout


def test_the_page_names_what_is_tested_here() -> None:
    page = (ROOT / "docs" / "reference" / "command_line.md").read_text("utf-8")
    for word in ("NO_COLOR", "TERM=dumb", "bash_source", "zsh_source", "fish_source", "-q", "-v"):
        assert word in page
