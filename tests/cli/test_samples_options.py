from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.testing import CliRunner

from onnxq.cli.samples_options import samples_options

if TYPE_CHECKING:
    from onnxq import Samples


@click.command()
@samples_options
def command(reading: Samples) -> None:
    click.echo(f"{reading.batch_size} {reading.ignore} {reading.feedback}")


def test_a_command_gets_the_options_as_one_value() -> None:
    assert CliRunner().invoke(command, []).output == "None () {}\n"
    words = ["--batch-size", "4", "--ignore", "labels", "--feedback", "h_next=h"]
    assert CliRunner().invoke(command, words).output == "4 ('labels',) {'h_next': 'h'}\n"


def test_options_stand_in_the_help_in_the_order_in_which_samples_are_read() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    places = [shown.index(o) for o in ("--batch-size", "--ignore", "--image-size", "--feedback")]
    assert places == sorted(places)
