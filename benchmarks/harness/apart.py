"""Calls in processes of their own: what one needs of memory does not count for another."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def apart(
    function: Callable[..., Any], *arguments: object, first: Callable[[], None] | None = None
) -> Any:
    """Result of a call in a fresh process.

    Args:
        function: of a module, which the process imports.
        arguments: that can be pickled, as the result can.
        first: a call ahead of it, in that process.

    Raises:
        concurrent.futures.process.BrokenProcessPool: the process died.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), first) as pool:
        return pool.submit(function, *arguments).result()
