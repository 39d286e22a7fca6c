from __future__ import annotations

import errno
import re
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from onnxq import errors
from onnxq.cli import main
from onnxq.cli.commands import Commands
from onnxq.cli.common_options import common_options

HEAVY = ("torch", "onnxruntime", "onnx_ir", "onnx", "numpy", "rich")


def every_error() -> list[type[errors.OnnxqError]]:
    return errors.OnnxqError.__subclasses__()


@pytest.mark.parametrize("kind", every_error())
def test_each_error_is_one_message_with_its_exit_code(kind: type[errors.OnnxqError]) -> None:
    @click.group(cls=Commands)
    def group() -> None:
        pass

    @group.command()
    def fail() -> None:
        raise kind("what, where")

    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == kind.exit_code
    assert result.stderr == "Error: what, where\n"
    assert result.stdout == ""


@pytest.mark.parametrize("kind", every_error())
def test_the_help_names_each_exit_code(kind: type[errors.OnnxqError]) -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    meaning = errors.exit_codes()[kind.exit_code]
    assert re.search(rf"^ +{kind.exit_code} +{meaning}$", text, re.MULTILINE)


@pytest.mark.parametrize("command", ["", *sorted(main.commands)])
def test_no_line_of_a_help_page_is_wider_than_80_columns(command: str) -> None:
    text = CliRunner().invoke(main, [*command.split(), "--help"], terminal_width=80).stdout
    assert text.startswith("Usage: ")
    assert max(map(len, text.splitlines())) <= 80


def test_warnings_are_one_line_each() -> None:
    @click.group(cls=Commands)
    def group() -> None:
        pass

    @group.command()
    def warn() -> None:
        warnings.simplefilter("always")
        warnings.warn("look out", stacklevel=1)

    result = CliRunner().invoke(group, ["warn"])
    assert (result.exit_code, result.stderr) == (0, "warning: look out\n")


@pytest.mark.parametrize("name", [None, *sorted(main.commands)])
def test_help_of_each_command_loads_nothing_heavy(name: str | None) -> None:
    args = [name, "--help"] if name else ["--help"]
    code = (
        "import sys\nfrom onnxq.cli import main\n"
        f"main({args}, standalone_mode=False)\n"
        f"sys.exit(str([m for m in {HEAVY} if m in sys.modules] or ''))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.strip() == ""
    assert "Usage:" in done.stdout


def test_the_help_names_every_command_with_a_whole_sentence() -> None:
    text = CliRunner().invoke(main, ["-h"]).stdout
    assert "..." not in text.partition("Commands:")[2]
    assert all(f"  {name} " in text for name in main.commands)


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onnxq", "--version"], capture_output=True, text=True, check=False
    )
    assert "onnxq" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ValueError("odd\nmore"), 1, "Error: ValueError: odd. This is a fault of onnxq: please"),
        (MemoryError(), 12, "Error: out of memory."),
        (KeyboardInterrupt(), 130, "stopped"),
        (OSError(errno.ENOSPC, "No space left"), 9, "Error: stdout cannot be written: No space"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 9, ""),
        (
            FileNotFoundError(errno.ENOENT, "No such file", "x"),
            1,
            "Error: FileNotFoundError: ",
        ),
    ],
    ids=repr,
)
def test_every_exception_is_one_line_and_the_traceback_is_for_debug(
    raised: BaseException, code: int, said: str
) -> None:
    @common_options
    @click.group(cls=Commands)
    def group() -> None:
        pass

    @common_options
    @group.command()
    def fail() -> None:
        raise raised

    result = CliRunner().invoke(group, ["fail"])
    assert (result.exit_code, result.stderr.count("\n")) == (code, bool(said))
    assert result.stderr.startswith(said)
    for args in (["--debug", "fail"], ["fail", "--debug"]):
        shown = CliRunner().invoke(group, args)
        assert shown.exit_code == code
        assert "Traceback (most recent call last)" in shown.stderr
        assert said in shown.stderr


@pytest.mark.parametrize("name", [None, *sorted(main.commands)])
def test_every_command_takes_the_common_options(name: str | None) -> None:
    text = CliRunner().invoke(main, [name, "-h"] if name else ["-h"]).stdout
    assert all(
        option in text for option in ("-h, --help", "-v, --verbose", "-q, --quiet", "--debug")
    )


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    onnxq = f"{sys.executable} -m onnxq"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("onnxq", onnxq, 1)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_full_stdout_is_an_error_in_one_line() -> None:
    done = _shell("onnxq targets > /dev/full")
    assert (done.returncode, done.stderr) == (
        9,
        "Error: stdout cannot be written: No space left on device.\n",
    )


def test_a_pipe_that_is_closed_early_and_a_closed_stdout_end_quietly() -> None:
    assert _shell("onnxq targets | true").stderr == ""
    done = _shell("onnxq targets >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("option", "said"), [("--samples", "SAMPLES"), ("--model", "MODEL")])
def test_an_argument_given_as_an_option_is_said_to_be_one(option: str, said: str) -> None:
    text = CliRunner().invoke(main, ["quantize", "a.onnx", option, "b.npz"]).stderr
    assert f"{said} is an argument: leave '{option}' out." in text
    assert "option of" not in text


def test_an_option_of_other_commands_is_said_to_be_theirs() -> None:
    text = CliRunner().invoke(main, ["quantize-weights", "a.onnx", "--target", "x86"]).stderr
    assert "No such option '--target'. It is an option of " in text
    assert "quantize-dynamic" in text
    assert "Did you mean" not in text


def test_a_slip_in_an_option_still_has_a_suggestion() -> None:
    text = CliRunner().invoke(main, ["quantize", "a.onnx", "--tagret", "x86"]).stderr
    assert "--target" in text
