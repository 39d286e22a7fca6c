from __future__ import annotations

import subprocess
import sys
import warnings

import click
import pytest
from click.testing import CliRunner

from onnxq import errors
from onnxq.cli import main
from onnxq.cli.commands import Commands

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
    text = " ".join(CliRunner().invoke(main, ["--help"]).stdout.split())
    assert f", {kind.exit_code} " in text[text.index("Exit codes:") :]


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


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onnxq", "--version"], capture_output=True, text=True, check=False
    )
    assert "onnxq" in done.stdout + done.stderr
