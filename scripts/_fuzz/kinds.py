"""The kinds of input that are fuzzed, and how often."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scripts._fuzz.case import MakeCase

KINDS = {"models": 6, "samples": 1, "yaml": 1, "statistics": 1, "plans": 1}
"""Module of scripts/_fuzz -> its share of the cases."""


def make_case(kind: str) -> MakeCase:
    """The function `case` of a kind's module; see scripts/_fuzz/case.py."""
    module = importlib.import_module(f"scripts._fuzz.{kind}")
    made: MakeCase = module.case
    return made


def numbered(kinds: Sequence[str], count: int) -> Iterator[tuple[str, int]]:
    """(kind, number) of so many cases; a kind's cases are the same whatever the others are."""
    parts = sum(KINDS[kind] for kind in kinds)
    for kind in kinds:
        for number in range(-(-count * KINDS[kind] // parts)):
            yield kind, number
