"""The command group: errors become a message and an exit code, warnings one line each."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import click

from onnxq.errors import OnnxqError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Commands(click.Group):
    """Turns an OnnxqError into its message and exit code, and warnings into one line each."""

    def invoke(self, ctx: click.Context) -> object:
        """Runs the command that ctx names."""
        with plain_warnings():
            try:
                return super().invoke(ctx)
            except OnnxqError as error:
                click.echo(f"Error: {error}", err=True)
                ctx.exit(error.exit_code)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings go to stderr, without file and line."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_args, **_kwargs: click.echo(
            f"warning: {message}", err=True
        )
        yield
