"""Ray as a `concurrent.futures.Executor`."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from typing import Any, ParamSpec, TypeVar

from onnxq.errors import UnsupportedError

P = ParamSpec("P")
Result = TypeVar("Result")


class RayExecutor(Executor):
    """An Executor whose calls are Ray tasks of one CPU each; the nodes need onnxq, too.

    Ray has none of its own: `ray.util.multiprocessing.Pool` gives no futures (ray issue 29456).

    Args:
        address: "auto", or "ray://host:port"; None: the Ray that this process is connected to, else
            a new one on this machine. What the constructor connects, `shutdown` disconnects.
    Raises:
        UnsupportedError: Ray is not installed.
    """

    def __init__(self, address: str | None = None) -> None:
        self._ray: Any = imported("ray", "ray")
        self._connected = not self._ray.is_initialized()
        if self._connected:
            self._ray.init(address, log_to_driver=False, logging_level="ERROR")
        self._task = self._ray.remote(_call)
        self._lock = threading.Lock()
        self._futures: set[Future[Any]] | None = set()

    @property
    def max_workers(self) -> int:
        """CPUs of the cluster as it is now."""
        return int(self._ray.cluster_resources().get("CPU", 1))

    def submit(
        self, fn: Callable[P, Result], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[Result]:
        """Future of fn(*args, **kwargs), a Ray task; cancelling the one cancels the other.

        Raises:
            RuntimeError: the Executor was shut down.
        """
        with self._lock:
            if self._futures is None:
                raise RuntimeError("this RayExecutor was shut down; make a new one.")
            reference = self._task.remote(fn, args, kwargs)
            future: Future[Result] = reference.future()
            self._futures.add(future)

        def ended(future: Future[Result]) -> None:
            if future.cancelled():
                self._ray.cancel(reference)
            with self._lock:
                if self._futures is not None:
                    self._futures.discard(future)

        future.add_done_callback(ended)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls, and disconnects, as `Executor.shutdown` documents."""
        with self._lock:
            futures, self._futures = self._futures, None
        if futures is None:
            return
        if cancel_futures:
            for future in futures:
                future.cancel()
        if wait:
            wait_for([future for future in futures if not future.cancelled()])
        if self._connected:
            self._ray.shutdown()


def _call(function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
    return function(*args, **kwargs)


# --- Packages that only some clusters need: the extras of onnxq


def imported(module: str, extra: str) -> Any:
    """The module that an extra brings."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"'{module}' cannot be imported ({error}). Install it: pip install 'onnxq[{extra}]'."
        ) from error
