"""Ctrl-C and SIGTERM, as the command line hears them.

Both raise KeyboardInterrupt, so that whatever is half-done is taken back; the exit code says which
one came: 128 + its number, as shells report it.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)

_came: list[int] = []


def hear() -> None:
    """From here on, the first Ctrl-C or SIGTERM raises KeyboardInterrupt; a further one kills.

    A signal that the parent has switched off (nohup, `&`) stays off.
    """
    forget()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def ignore() -> None:
    """From here on, Ctrl-C and SIGTERM do nothing."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def forget() -> None:
    """Begins anew: no signal has come."""
    _came.clear()


def exit_code() -> int | None:
    """Exit code of a process that a signal stopped; None: none came."""
    return 128 + _came[0] if _came else None


@contextlib.contextmanager
def stoppable() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets, so that what was seen is saved.

    A further one does what it did before. The event is set from the start where one came already:
    Python drops a KeyboardInterrupt that is raised in a finalizer.
    """
    stopped = threading.Event()
    if _came:
        stopped.set()

    def stop(number: int, _frame: FrameType | None) -> None:
        _came.append(number)
        stopped.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {n: signal.getsignal(n) for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    _came.append(number)
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt
