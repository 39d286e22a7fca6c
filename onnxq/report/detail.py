"""How much is shown: nothing beside results, what matters first, or every row and whole names."""

import contextlib
import enum
from collections.abc import Iterator
from contextvars import ContextVar


class Detail(enum.Enum):
    """How much is shown."""

    QUIET = "quiet"
    """No progress, notes and warnings; no report on a file that is written."""
    SHORT = "short"
    """The worst rows, the rest counted; names cut where the terminal is narrow."""
    WHOLE = "whole"
    """Every row, every name."""


_chosen: ContextVar[Detail] = ContextVar("detail", default=Detail.SHORT)


def is_whole() -> bool:
    """Whether every row and name is to be shown."""
    return _chosen.get() is Detail.WHOLE


def is_quiet() -> bool:
    """Whether only results and errors are to be shown."""
    return _chosen.get() is Detail.QUIET


@contextlib.contextmanager
def showing(detail: Detail) -> Iterator[None]:
    """Reports that are printed inside of it show so much."""
    token = _chosen.set(detail)
    try:
        yield
    finally:
        _chosen.reset(token)
