"""Options on the verdict of a quantized model, which `quantize` and `quantize-dynamic` share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from onnxq.cli.options import PATH, Bound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxq.checking.with_verdict import Check

Command = TypeVar("Command", bound="Callable[..., object]")


def verdict_options(command: Command) -> Command:
    """Adds --check, --min-sqnr and --no-verdict to a command."""
    for option in (
        click.option(
            "--no-verdict",
            is_flag=True,
            help="Write the file without running it: for operators that are not registered here.",
        ),
        click.option(
            "--min-sqnr",
            type=Bound(),
            metavar="DB",
            help="Write nothing if a float output falls below this SQNR.",
        ),
        click.option(
            "--check",
            type=PATH,
            help="Samples to try the result on, other than those of the calibration.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Asked:
    """Values of the options.

    Attributes:
        check: samples to try the model on.
        min_sqnr: bound on every float output, in dB.
        no_verdict: the model is not run.

    Raises:
        click.UsageError: options that contradict each other.
    """

    check: Path | None
    min_sqnr: float | None
    no_verdict: bool

    def __post_init__(self) -> None:
        if self.no_verdict and (self.check is not None or self.min_sqnr is not None):
            raise click.UsageError("--no-verdict leaves nothing for --check and --min-sqnr.")

    @property
    def source(self) -> Path | Check:
        """Samples or a Check, as the pipeline takes them."""
        from onnxq.checking.with_verdict import Check

        if self.check is not None:
            return self.check
        return Check.NONE if self.no_verdict else Check.CALIBRATION
