"""Options on who does the work: processes of this machine, or a cluster."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from onnxq.cli.options import added

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

PRELOAD = (
    "onnxq.pipeline",
    "onnxq.weight_only",
    "onnxq.checking.cross_check",
    "onnxq.checking.predict",
    "onnxq.tuning.tune",
)
"""Modules with the work of every command."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Values of the options."""

    jobs: int
    cluster: str | None

    def __post_init__(self) -> None:
        if self.cluster is None:
            return
        from onnxq.jobs.processes import check_address

        if self.jobs > 1:
            raise click.UsageError("give --jobs or --cluster, not both.")
        check_address(self.cluster)

    @contextlib.contextmanager
    def executor(self) -> Iterator[Executor | None]:
        """Who does the work, until the `with` ends; None: this process."""
        from onnxq.jobs import Processes, connected

        if self.cluster is not None:
            with connected(self.cluster) as executor:
                yield executor
        elif self.jobs > 1:
            with Processes(self.jobs, PRELOAD) as processes:
                yield processes
        else:
            yield None


NO_WORKERS = Workers(1, None)
"""This process does it."""


def workers_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --jobs and --cluster to a command, which gets their values as one, `workers`."""

    @wraps(command)
    def packed(**given: Any) -> None:  # click hands options by their names
        workers = Workers(given.pop("jobs"), given.pop("cluster"))
        command(**given, workers=workers)

    options = (
        click.option(
            "--cluster",
            metavar="dask://HOST:PORT",
            help="Let the workers of a cluster do it; files have to be where they can read them.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            metavar="N",
            help="Let so many processes do it, with one thread each; the result is the same.",
        ),
    )
    return added(packed, options)
