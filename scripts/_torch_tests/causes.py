"""Causes of failures, and reasons why tests do not apply, by file and test."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a test does not pass.

    Attributes:
        text: in a line.
        applies: whether it counts as a failure; else it is not applicable.
    """

    text: str
    applies: bool


KNOWN: tuple[tuple[str, str, Cause], ...] = ()
"""(file, pattern of names, cause)."""


def find(file: str, name: str) -> Cause | None:
    """The first cause whose file and pattern fit."""
    fitting = (cause for of, pattern, cause in KNOWN if of == file and fnmatchcase(name, pattern))
    return next(fitting, None)
