"""Options of every command, before or behind its name: -h, -v, -q, --debug, --run-seconds, ..."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TypeVar

import click

from onnxq.core.limits import DEFAULT_SECONDS, GB, current_limits, limits
from onnxq.report.detail import Detail, is_quiet, showing
from onnxq.report.wrapping import say, say_aside
from onnxq.shown import shown_lines

Command = TypeVar("Command", bound=click.Command)

DEBUG = "onnxq.debug"
"""Key of the context's `meta` where --debug was given."""
VERBOSE = "onnxq.verbose"
"""Key of the number of -v."""
QUIET = "onnxq.quiet"
"""Key that is there where -q was given."""
HELP_NAMES = ["-h", "--help"]
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)
"""Level of the log by the number of -v."""


def common_options(command: Command) -> Command:
    """The command, which has these options too."""
    command.context_settings.setdefault("help_option_names", HELP_NAMES)
    command.params += [
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_be_verbose,
            help="Show every row and whole names, and log the steps; -vv: each batch, too.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_be_quiet,
            help="No progress, notes and warnings, and no report on a file that is written.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            callback=_remember_debug,
            help="Show the traceback of an error.",
        ),
        click.Option(
            ["--run-seconds"],
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            expose_value=False,
            callback=_bound_seconds,
            help="Time that a model may take to open, and for its first run, in a process of its "
            f"own: {DEFAULT_SECONDS:g}, and as much for each GB of it.",
        ),
        click.Option(
            ["--run-memory"],
            type=click.FloatRange(min=0, min_open=True),
            metavar="GB",
            expose_value=False,
            callback=_bound_memory,
            help="Memory that it may take there; by default, all that is free.",
        ),
    ]
    return command


def say_note(text: str) -> None:
    """A line on stderr, but for -q."""
    if not is_quiet():
        say_aside(f"note: {text}")


def say_written(text: str) -> None:
    """A line on stdout about a file that was written, but for -q."""
    if not is_quiet():
        say(text)


def _be_verbose(ctx: click.Context, _param: click.Parameter, count: int) -> None:
    if not count:
        return
    ctx.meta[VERBOSE] = ctx.meta.get(VERBOSE, 0) + count
    _refuse_both(ctx)
    ctx.with_resource(showing(Detail.WHOLE))
    ctx.with_resource(_logging(LEVELS[min(ctx.meta[VERBOSE], len(LEVELS) - 1)]))


def _be_quiet(ctx: click.Context, _param: click.Parameter, given: bool) -> None:
    if not given:
        return
    ctx.meta[QUIET] = True
    _refuse_both(ctx)
    ctx.with_resource(showing(Detail.QUIET))


def _bound_seconds(ctx: click.Context, _param: click.Parameter, given: float | None) -> None:
    if given is not None:
        ctx.with_resource(limits(given, current_limits().memory_bytes))


def _bound_memory(ctx: click.Context, _param: click.Parameter, given: float | None) -> None:
    if given is not None:
        ctx.with_resource(limits(current_limits().seconds, max(1, int(given * GB))))


def _refuse_both(ctx: click.Context) -> None:
    if ctx.meta.get(VERBOSE) and ctx.meta.get(QUIET):
        raise click.UsageError("give -v or -q, not both.")


def _remember_debug(ctx: click.Context, _param: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[DEBUG] = True


class _Formatter(logging.Formatter):
    """Lines in which names of a file are shown and never obeyed."""

    def format(self, record: logging.LogRecord) -> str:
        return shown_lines(super().format(record))


@contextlib.contextmanager
def _logging(level: int) -> Iterator[None]:
    """The log of onnxq goes to stderr, until the `with` ends; there is one handler at most."""
    log = logging.getLogger("onnxq")
    before = log.level
    log.setLevel(level)
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(levelname)s %(name)s: %(message)s"))
    added = [] if log.handlers else [handler]
    for one in added:
        log.addHandler(one)
    try:
        yield
    finally:
        for one in added:
            log.removeHandler(one)
        log.setLevel(before)
