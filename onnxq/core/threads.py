"""How many threads the reference kernels use, and how work is dealt out to them.

    with workers(4):
        parts = in_parallel(function, shares(rows))

One worker is the rule. The BLAS that NumPy calls gets one thread in any case, as long as a `with`
runs: its own threads would compete with the workers, and spin where the machine is busy (two of
them made a ResNet-50 ten times slower than one).
"""

import functools
import importlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeVar

from threadpoolctl import ThreadpoolController

from onnxq.errors import QConfigError

Part = TypeVar("Part")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Pool:
    executor: ThreadPoolExecutor
    size: int


_POOL: ContextVar[_Pool | None] = ContextVar("onnxq_workers", default=None)
"""Pool of the `with` around the caller; its own threads see None, so that nothing nests."""


@contextmanager
def workers(count: int) -> Iterator[None]:
    """Until the `with` ends, `in_parallel` uses that many threads, and BLAS one.

    Only the calling thread (and context) sees the workers. BLAS has one setting for the process; it
    is put back when the last of several overlapping `with` ends.
    """
    if isinstance(count, bool) or not isinstance(count, SupportsIndex) or count.__index__() < 1:
        raise QConfigError(f"{count!r} worker threads; wanted a whole number from 1.")
    with _one_blas_thread():
        if count == 1:
            token = _POOL.set(None)
            try:
                yield
            finally:
                _POOL.reset(token)
            return
        with ThreadPoolExecutor(count, "onnxq") as executor:
            token = _POOL.set(_Pool(executor, count))
            try:
                yield
            finally:
                _POOL.reset(token)


def worker_count() -> int:
    """How many threads `in_parallel` would use here."""
    pool = _POOL.get()
    return 1 if pool is None else pool.size


def in_parallel(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """function(part) of every part, in order; the first error is raised.

    The function may only read what the parts share, and write what is its part's own.
    """
    pool = _POOL.get()
    if pool is None or len(parts) < 2:
        return [function(part) for part in parts]
    return list(pool.executor.map(function, parts))


def shares(size: int) -> list[slice]:
    """range(size) in one slice per worker, of nearly equal length; empty ones are left out."""
    count = max(1, min(worker_count(), size))
    edges = [size * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


_lock = threading.Lock()
_limits: list[Any] = []
"""Limits to one BLAS thread, of each `with` that runs; the first knows the threads before them."""


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    with _lock:
        _limits.append(_libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:  # this was the first
                limit.restore_original_limits()


@functools.cache
def _libraries() -> ThreadpoolController:
    """The libraries with thread pools that the process has loaded, NumPy's BLAS among them."""
    importlib.import_module("numpy")  # loads its BLAS
    return ThreadpoolController()
