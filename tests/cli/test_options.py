from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onnxq.cli.options import names
from onnxq.cli.searching import tune

if TYPE_CHECKING:
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
