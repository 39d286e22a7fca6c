"""Options that several benchmarks have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE = click.Path(path_type=Path)

with_data = click.option(
    "--data", type=FILE, help="npz with all CIFAR-10 images as JPEG files; default: embedded ones"
)


def with_rounds(default: int) -> Callable[[Any], Any]:
    """The number of rounds in which what is compared takes turns."""
    return click.option("--rounds", default=default, show_default=True)


def with_names(known: Iterable[str], name: str = "names") -> Callable[[Any], Any]:
    """Arguments that choose some of what there is; none: all."""
    return click.argument(name, nargs=-1, type=click.Choice(list(known)), metavar="[NAME]...")
