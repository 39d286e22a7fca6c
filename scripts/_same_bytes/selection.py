"""Names of nets on the command line, and how many processes make them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from scripts._same_bytes.nets import GROUPS, all_names

if TYPE_CHECKING:
    import argparse


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Adds NAME... and --jobs."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"nets, or groups: {', '.join(GROUPS)}; all"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")


def selected(parser: argparse.ArgumentParser, names: list[str]) -> list[str]:
    """The nets that names and groups stand for, each once; none given: all."""
    every = all_names()
    wanted = [one for name in names for one in (GROUPS[name]() if name in GROUPS else [name])]
    if unknown := set(wanted) - set(every):
        parser.error(f"no such net: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    return list(dict.fromkeys(wanted)) or every
