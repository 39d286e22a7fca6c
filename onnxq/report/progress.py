"""A progress bar on stderr for long work: on a terminal only, so that logs stay clean; -q: none."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from onnxq.report.detail import is_quiet

Step = Callable[[int, int | None], None]
"""Called with (done, total or None where that is not known)."""

Watching = Callable[[str], contextlib.AbstractContextManager[Step]]
"""Gives a Step for work of that name, as `progress_bar` does."""


@contextlib.contextmanager
def unwatched(_what: str) -> Iterator[Step]:
    """A Step that shows nothing."""
    yield lambda _done, _total: None


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Step]:
    """A function that moves the bar; it does nothing on no terminal, or with -q."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # here: logs need none of it
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
