"""-v, -q and the log, before and behind a command's name."""

from __future__ import annotations

import logging
import warnings

import click
import pytest
from click.testing import CliRunner

from onnxq.cli.commands import Commands
from onnxq.cli.common_options import common_options, say_note, say_written
from onnxq.report.detail import is_quiet, is_whole

LOG = logging.getLogger("onnxq.example")


def example() -> click.Group:
    """A group with one command, which says all that can be said."""

    @common_options
    @click.group(cls=Commands)
    def group() -> None:
        pass

    @common_options
    @group.command()
    def work() -> None:
        say_note("a note")
        say_written("a file")
        warnings.simplefilter("always")
        warnings.warn("a warning", UserWarning, stacklevel=1)
        LOG.info("a step")
        LOG.debug("a batch")
        click.echo("whole" if is_whole() else "short")

    return group


@pytest.mark.parametrize(
    ("options", "said", "shown"),
    [
        ([], "note: a note\nwarning: a warning\n", "a file\nshort\n"),
        (["-q"], "", "short\n"),
        (
            ["-v"],
            "note: a note\nwarning: a warning\nINFO onnxq.example: a step\n",
            "a file\nwhole\n",
        ),
    ],
    ids=str,
)
def test_the_options_mean_the_same_before_and_behind_the_name(
    options: list[str], said: str, shown: str
) -> None:
    for words in ([*options, "work"], ["work", *options]):
        result = CliRunner().invoke(example(), words)
        assert (result.stderr, result.stdout) == (said, shown)


def test_two_v_log_each_batch() -> None:
    for words in (["-vv", "work"], ["-v", "work", "-v"]):
        assert "DEBUG onnxq.example: a batch" in CliRunner().invoke(example(), words).stderr


def test_v_and_q_together_are_wrong_usage() -> None:
    result = CliRunner().invoke(example(), ["-v", "work", "-q"])
    assert (result.exit_code, "not both" in result.stderr) == (2, True)


def test_afterwards_everything_is_as_before() -> None:
    CliRunner().invoke(example(), ["-vv", "work"])
    CliRunner().invoke(example(), ["-q", "work"])
    assert not is_whole()
    assert not is_quiet()
    assert not logging.getLogger("onnxq").handlers
    assert logging.getLogger("onnxq").level == logging.NOTSET
