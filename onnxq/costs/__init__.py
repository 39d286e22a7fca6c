"""Costs: how long a node takes in each form, from tables that `onnxq costs` measured.

    table = costs.of("x86-vnni")                        None where no machine was measured
    table.node(work_of(node, sizes), Precision.INT8)  Estimate of ns and its error, or None
    table.change(Change.QUANTIZE, elements)             of a tensor between two forms

Nothing here looks at a clock: that is `onnxq.clock`.
"""

from __future__ import annotations

from onnxq.costs.table import Change, Costs, Estimate, Timing, of
from onnxq.costs.work import Work, work_of

__all__ = ["Change", "Costs", "Estimate", "Timing", "Work", "of", "work_of"]
