"""An Executor that is as awkward as one may be."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any


class Newest(Executor):
    """Runs the newest call first, when so many wait; some calls are lost.

    Args:
        workers: that it says it has.
        lost: numbers of the calls whose worker goes away.
    """

    def __init__(self, workers: int, lost: frozenset[int] = frozenset()) -> None:
        self.max_workers, self.calls = workers, 0
        self._lost = lost
        self._inner = ThreadPoolExecutor(1)
        self._waiting: list[tuple[int, Future[Any], Any]] = []
        self._lock = threading.Lock()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((self.calls, future, lambda: fn(*args, **kwargs)))
            self.calls += 1
        self._inner.submit(self._run_newest)
        return future

    def _run_newest(self) -> None:
        with self._lock:
            number, future, call = self._waiting.pop()
        if not future.set_running_or_notify_cancel():
            return
        if number in self._lost:
            future.set_exception(ConnectionResetError("the worker went away"))
        else:
            future.set_result(call())
