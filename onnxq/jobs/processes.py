"""Processes of this machine as an Executor that survives the death of its workers."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext
from typing import Any, ParamSpec, TypeVar

from onnxq.errors import QConfigError, UnsupportedError, WorkerError, first_line, nearest

P = ParamSpec("P")
Result = TypeVar("Result")


class Processes(Executor):
    """An Executor of so many processes; a pool that broke is made anew with the next submission.

    Workers share nothing with this process: they are no forks of it, which would copy its threads'
    locks. They ignore Ctrl-C, which this process answers, and end when it does, even by SIGKILL.

    Args:
        count: of processes, from 1.
        preload: modules that the work needs, imported once for all workers where the system can.
    Attributes:
        max_workers: the count.
    Raises:
        QConfigError: no whole number, or fewer than 1.
    """

    def __init__(self, count: int, preload: Sequence[str] = ()) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise QConfigError(f"{count!r} processes; wanted a whole number from 1.")
        self.max_workers = count
        self._preload = tuple(preload)
        self._lock = threading.Lock()
        self._is_shut_down = False
        self._pool: ProcessPoolExecutor | None = None  # until the first submission

    def submit(
        self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Result]:
        """Future of fn(*args, **kwargs) in one of the processes.

        Raises:
            RuntimeError: the Executor was shut down.
        """
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("these processes were shut down; make new ones.")
            if self._pool is None:
                self._pool = self._new_pool()
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:
                self._pool.shutdown(wait=False)
                self._pool = self._new_pool()
                return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes, as `Executor.shutdown` documents."""
        with self._lock:
            pool, self._pool = self._pool, None
            self._is_shut_down = True
        if pool is not None:
            pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: object, *_: object) -> None:
        """Ends the processes; after an error at once, as nobody wants what they work on."""
        if kind is not None:
            self._kill()
        self.shutdown(wait=True, cancel_futures=kind is not None)

    def _kill(self) -> None:
        with self._lock:
            # the pool has no public way before Python 3.14
            running = dict(getattr(self._pool, "_processes", None) or {})
        for process in running.values():
            process.terminate()

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.max_workers, _context(self._preload), _begin)


def _context(preload: Sequence[str]) -> BaseContext:
    """Processes that a small server forks, where there is one: imports are paid for once."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    wait_for_server(context, preload)
    return context


def _begin() -> None:
    """Leaves Ctrl-C to the parent, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, name="onnxq-parent", daemon=True).start()


def _end_with_parent() -> None:
    """Waits for the parent's end: a worker of the pool would wait for work forever."""
    parent: Any = multiprocessing.parent_process()
    parent.join()
    os._exit(1)


# --- Server that forks workers, started so that Ctrl-C while it imports prints nothing
#
# `multiprocessing` ignores Ctrl-C in its server only behind the imports of what is preloaded, which
# take seconds. Until then, two things print a traceback on the user's terminal. One is SIGINT in
# the midst of an import. The other is a worker that was asked for and is forked when its parent is
# gone: it finds the pool's semaphores gone.


LAST_IMPORT = "onnxq.jobs.after_imports"
"""Module that takes the block of Ctrl-C away: other processes of that server answer it as usual."""


def wait_for_server(context: ForkServerContext, preload: Sequence[str]) -> None:
    """Returns once the server forks: its imports are done, and a worker takes no time to begin.

    The process that tells so shares nothing with this one. So nothing fails where this one ends
    ahead of it.
    """
    context.set_forkserver_preload([*preload, LAST_IMPORT])
    _start_deaf()
    first = context.Process(target=int, daemon=True)
    first.start()
    first.kill()  # it would import the program's main module only to do nothing
    first.join()


def _start_deaf() -> None:
    resource_tracker.ensure_running()  # as it starts, it lets SIGINT in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()  # inherits the mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- Clusters by address: "dask://host:port"


SCHEME = "dask"
WAIT_S = 30.0  # for a scheduler that does not answer


def check_address(address: str) -> str:
    """The host and port of a cluster's address."""
    scheme, separator, place = address.partition("://")
    if scheme != SCHEME or not separator or not place:
        raise QConfigError(
            f"cluster '{address}'; wanted dask://host:port.{nearest(scheme, [SCHEME])}"
        )
    return place


@contextlib.contextmanager
def connected(address: str) -> Iterator[Executor]:
    """An Executor of the cluster, until the `with` ends; the cluster itself goes on.

    Raises:
        QConfigError: the address has another form.
        UnsupportedError: Dask is not installed.
        WorkerError: nothing answers there.
    """
    place = check_address(address)
    try:
        import distributed
    except ImportError as error:
        raise UnsupportedError(
            f"'distributed' cannot be imported ({error}). Install it: pip install 'onnxq[dask]'."
        ) from error
    try:
        client = distributed.Client(f"tcp://{place}", timeout=WAIT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkerError(
            f"cluster '{address}' does not answer ({type(error).__name__}: {first_line(error)}). "
            "Check the address, and that its scheduler runs."
        ) from error
    with client:
        executor: Executor = client.get_executor()
        yield executor
