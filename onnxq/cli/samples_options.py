"""Options that say how samples are read: one group for every command that reads some."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from onnxq.cli.image_options import image_options
from onnxq.cli.options import pair

if TYPE_CHECKING:
    from collections.abc import Callable

_batch_size = click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help="Samples per run; default: the model's, else 1.",
)
_ignore = click.option(
    "--ignore", multiple=True, metavar="NAME", help="An array in SAMPLES that is no input (labels)."
)
_feedback = click.option(
    "--feedback",
    multiple=True,
    metavar="OUTPUT=INPUT",
    callback=pair,
    help="State: this output of a batch is that input of the next one. May be repeated.",
)


def samples_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --batch-size, --ignore, --feedback, and options that make images of folders.

    The command gets their values as one, `reading`: Samples without a source.
    """
    return _packed(command, (_feedback, image_options, _ignore, _batch_size))


def stateless_samples_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the same options but --feedback, for commands that run each batch alone."""
    return _packed(command, (image_options, _ignore, _batch_size))


def _packed(
    command: Callable[..., None], options: tuple[Callable[..., Any], ...]
) -> Callable[..., None]:
    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        from onnxq.samples import Samples

        how = given.pop("batch_size"), given.pop("ignore"), given.pop("feedback", {})
        command(**given, reading=Samples(None, *how))

    made: Callable[..., None] = packed
    for option in options:
        made = option(made)
    return made
