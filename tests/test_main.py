from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onnxq

WHILE_IMPORTING = """
import os, signal, sys
import onnxq.__main__ as command

class Sender:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Sender())
sys.argv = ["onnxq", "targets"]
command.main()
"""

BESIDE_THE_COMMAND = """
import os, signal, sys
import onnxq.__main__ as command
from onnxq.core import signals

inner = {place}

def outer():
    inner()
    os.kill(os.getpid(), signal.SIGTERM)

{place} = outer
sys.argv = ["onnxq", "--version"]
command.main()
"""

WITHIN_EXEC = """
import sys
import onnxq.__main__ as command

class Sender:
    def find_spec(self, name, *_):
        if name == "onnxq.cli.commands":
            exec("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")

sys.meta_path.insert(0, Sender())
sys.argv = ["onnxq", "targets"]
command.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("module", ["onnxq.cli.commands", "onnxq.report.console", "rich.table"])
def test_a_signal_while_modules_are_imported_has_its_exit_code(
    module: str, signal: str, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WHILE_IMPORTING.format(module=module, signal=signal)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("place", ["signals.hear", "command._open_streams"])
def test_a_signal_before_the_command_has_its_exit_code(place: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_THE_COMMAND.format(place=place)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_a_signal_within_an_exec_of_text_has_its_exit_code(tmp_path: Path) -> None:
    """Dataclasses are made of text; `python -m` takes an interrupt in it for one of its own."""
    (tmp_path / "stopped.py").write_text(WITHIN_EXEC)
    places = os.pathsep.join((str(tmp_path), str(Path(onnxq.__file__).parents[1])))
    done = subprocess.run(
        [sys.executable, "-m", "stopped"],
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
