from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest

from onnxq.cli import main
from onnxq.cli.option_groups import ORDER
from onnxq.cli.options import names
from onnxq.cli.searching import tune

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "/", "-1/2"])
def test_a_shard_of_another_form_is_wrong_usage(run: Run, text: str) -> None:
    result = run("calibrate", "m.onnx", "x.npz", "-o", "s", "--shard", text)
    assert result.exit_code == 2
    assert "wanted I/N" in result.stderr


@pytest.mark.parametrize("text", ["h", "=h", "h="])
def test_feedback_of_another_form_is_wrong_usage(run: Run, text: str) -> None:
    result = run("calibrate", "m.onnx", "x.npz", "-o", "s", "--feedback", text)
    assert result.exit_code == 2
    assert "wanted OUTPUT=INPUT" in result.stderr


@pytest.mark.parametrize("command", ["quantize", "verify"])
def test_a_bound_without_a_range_shows_none(run: Run, command: str) -> None:
    assert "None" not in run(command, "--help").stdout


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        (" ", ()),
        ("bias, round", ("bias", "round")),
        (",", ("",)),
        ("bias,", ("bias", "")),
        (",,bias", ("bias", "")),
    ],
)
def test_what_is_missing_between_commas_is_one_empty_name(text: str, found: object) -> None:
    assert names(tune.make_context("tune", ["m", "x", "-o", "y"]), tune.params[0], text) == found


@pytest.mark.parametrize("command", ["quantize", "quantize-dynamic", "quantize-weights", "tune"])
def test_help_has_every_option_once_and_what_most_people_need_first(run: Run, command: str) -> None:
    text = run(command, "--help").stdout
    shown = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
    options = [p for p in main.commands[command].params if isinstance(p, click.Option)]
    assert sorted(shown) == sorted(["--help", *(max(p.opts, key=len) for p in options)])
    assert shown[0] == "--output"
    first = text.split("Options:")[1].split("\n\n")[0]
    assert 8 <= len(re.findall(r"^  (?:-\w, )?--", first, re.MULTILINE)) <= 14


def test_each_option_of_a_group_is_one_of_a_command() -> None:
    every = {max(p.opts, key=len) for c in main.commands.values() for p in c.params}
    assert set(ORDER) <= every | {"--help"}


def test_without_o_the_file_is_named_after_the_model_and_never_overwritten(
    run: Run, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("quantize-dynamic", model_path, "--objective", "size")
    assert run(*command).exit_code == 0
    before = (tmp_path / "m.int8.onnx").read_bytes()
    again = run(*command)
    assert (again.exit_code, "is there already" in again.stderr) == (9, True)
    assert (tmp_path / "m.int8.onnx").read_bytes() == before
    misspelled = run(*command, "--target", "x86-vni")
    assert (misspelled.exit_code, "Did you mean 'x86-vnni'" in misspelled.stderr) == (5, True)
