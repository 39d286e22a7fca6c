"""Pieces of work over any `concurrent.futures.Executor`: ordered, bounded, retried; knows no model.

    with Processes(4) as executor:
        for result in in_order(executor, Make(...), items):
            ...

`executor` is any Executor: of processes or threads, `dask.distributed.Client(...).get_executor()`;
None: everything runs here, when its result is asked for.
"""

from onnxq.jobs.in_order import in_order, slots
from onnxq.jobs.processes import Processes, connected

__all__ = ["Processes", "connected", "in_order", "slots"]
