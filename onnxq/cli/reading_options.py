"""Options that say how samples are read, which every command that compares takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from onnxq.cli.image_options import image_options
from onnxq.cli.options import batch_size_option, feedback_option, ignore_option

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of the options.

    Attributes:
        batch_size: samples at a time; None: the model's, else 1.
        ignore: names of arrays that the samples have and the model does not take.
        feedback: output of a batch -> the input of the next one that it is.
    """

    batch_size: int | None
    ignore: tuple[str, ...]
    feedback: Mapping[str, str]


def reading_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds options on samples to a command, which gets their values as one, `reading`.

    They are --batch-size, --ignore, --feedback, and those that make images of folders.
    """

    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        reading = Reading(given.pop("batch_size"), given.pop("ignore"), given.pop("feedback"))
        command(**given, reading=reading)

    made: Callable[..., None] = packed
    for option in (feedback_option, image_options, ignore_option, batch_size_option):
        made = option(made)
    return made
