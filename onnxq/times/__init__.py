"""Times: how long a node takes in each precision, from tables that `onnxq costs` measured.

    table = costs_of("x86-vnni")                        None where no machine was measured
    table.node(work_of(node, sizes), Precision.INT8)  Estimate of ns and its error, or None
    table.change(Change.QUANTIZE, elements)             of a tensor between two precisions

Nothing here looks at a clock: that is `onnxq.times.microbenchmarks`.
"""

from onnxq.times.table import Change, Costs, Estimate, Timing, costs_of
from onnxq.times.work import Work, work_of

__all__ = ["Change", "Costs", "Estimate", "Timing", "Work", "costs_of", "work_of"]
