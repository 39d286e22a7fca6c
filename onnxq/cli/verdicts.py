"""Options on the verdict of a quantized model, which the commands that make one share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import click

from onnxq.cli.options import PATH, Bound

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from onnxq.checking.check import Check
    from onnxq.samples import Samples

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

    def as_check(self, reading: Samples, hold_apart: int | None = None) -> Check:
        """The options as one value.

        Args:
            reading: how samples are read.
            hold_apart: one batch of the samples in so many; None: none.
        """
        from onnxq.checking.check import Check

        if self.no_verdict:
            return Check.NONE
        samples = self.check if self.check is None else replace(reading, source=self.check)
        return Check(samples, hold_apart, self.min_sqnr)
