"""How many pieces of work an Executor runs at once."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import Any


def slots(executor: Executor | None) -> int:
    """Pieces that run at a time, as far as the Executor tells; else the cores of this machine.

    The number may change while a cluster grows or shrinks, and is 1 where there is no worker yet.
    """
    if executor is None:
        return 1
    client: Any = getattr(executor, "_client", None)  # of Dask, whose Executor has no number
    if hasattr(client, "nthreads"):
        threads: dict[str, int] = client.nthreads()
        return max(1, sum(threads.values()))
    for name in ("max_workers", "_max_workers"):  # ours; of the standard library
        count = getattr(executor, name, None)
        if isinstance(count, int):
            return max(1, count)
    return os.cpu_count() or 1
