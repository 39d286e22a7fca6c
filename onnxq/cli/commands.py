"""The command group: errors become a message and an exit code, warnings one line each."""

import contextlib
import errno
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import NoReturn

import click

from onnxq.cli.common_options import DEBUG
from onnxq.core import signals
from onnxq.errors import LimitError, OnnxqError, OutputError, first_line
from onnxq.report.detail import is_quiet
from onnxq.report.wrapping import say_aside
from onnxq.shown import shown, shown_lines

INTERRUPTED = 130
SENTENCE = 200
"""Characters of a command's first sentence, at most."""
TYPED = "onnxq.typed"
"""Key of the words behind the program's name, as they were typed."""
STDOUT_ERRORS = frozenset(
    getattr(errno, name, None)  # not every system has each
    for name in ("EPIPE", "ENOSPC", "EBADF", "EIO", "EFBIG", "EDQUOT")
)
"""Errors of writing to stdout. Those of files are OutputErrors; reading does not raise them."""


class Commands(click.Group):
    """Turns every exception into a line and an exit code, and warnings into one line each."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Words that are left for the command; all of them are kept for `typed_command`."""
        ctx.meta[TYPED] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command that ctx names."""
        with plain_warnings():
            try:
                result = super().invoke(ctx)
                if sys.stdout is not None:
                    sys.stdout.flush()  # what fails, fails here, and not at Python's exit
            except click.NoSuchOption as error:
                raise self._with_owners(error) from None
            except click.ClickException as error:
                vars(error).update(message=shown_lines(error.message))
                raise
            except (click.exceptions.Exit, click.Abort):
                raise
            except (Exception, KeyboardInterrupt) as error:
                _end(ctx, error)
            return result

    def _with_owners(self, error: click.NoSuchOption) -> click.NoSuchOption:
        """The error, and whose the option is: an argument's name, or one of other commands."""
        name, here = error.option_name, [] if error.ctx is None else error.ctx.command.params
        if any(isinstance(each, click.Argument) and name == f"--{each.name}" for each in here):
            said = f"{error.message} {name[2:].upper()} is an argument: leave '{name}' out."
            return click.NoSuchOption(name, said, ctx=error.ctx)
        owners = [
            command.name
            for command in self.commands.values()
            if not command.hidden and any(name in each.opts for each in command.params)
        ]
        if not owners:
            return error
        said = f"{error.message} It is an option of {', '.join(map(str, owners))}."
        return click.NoSuchOption(name, said, ctx=error.ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the first sentence of every command, whole; click's own cuts it to a line."""
        rows = [
            (name, command.get_short_help_str(SENTENCE))
            for name in self.list_commands(ctx)
            for command in [self.get_command(ctx, name)]
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def typed_command() -> str:
    """The command that runs, as a shell takes it."""
    return shlex.join(["onnxq", *click.get_current_context().meta[TYPED]])


def _end(ctx: click.Context, error: BaseException) -> NoReturn:
    """Says what happened and ends with the exit code that it has."""
    message, code = _said(error)
    with contextlib.suppress(OSError):  # stderr may be closed too
        if ctx.meta.get(DEBUG):
            lines = "".join(traceback.format_exception(error)).split("\n")
            click.echo("\n".join(map(shown, lines)), err=True)
        if message:
            say_aside(message)
    ctx.exit(code)


def _said(error: BaseException) -> tuple[str, int]:
    """(message, exit code) of whatever was raised."""
    stopped = signals.exit_code()  # a signal can come out of an import as any error
    if isinstance(error, KeyboardInterrupt) or stopped is not None:
        return "stopped", stopped or INTERRUPTED
    if isinstance(error, OnnxqError):
        return f"Error: {error}", error.exit_code
    if isinstance(error, BrokenPipeError):  # `| head` has seen enough
        return "", OutputError.exit_code
    if isinstance(error, OSError) and error.filename is None and error.errno in STDOUT_ERRORS:
        return f"Error: stdout cannot be written: {error.strerror}.", OutputError.exit_code
    if isinstance(error, MemoryError):
        return f"Error: out of memory{f' ({error})' if str(error) else ''}.", LimitError.exit_code
    return (
        f"Error: {type(error).__name__}: {first_line(error)}. This is a fault of onnxq: "
        "please report it, with the traceback that --debug shows.",
        OnnxqError.exit_code,
    )


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings go to stderr, without file and line; -q leaves them out."""

    def say(message: Warning | str, *_args: object, **_kwargs: object) -> None:
        if not is_quiet():
            say_aside(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = say
        yield
