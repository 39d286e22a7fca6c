"""Integer nodes that do not pay: their times, conversions included, are longer than in float.

The time of a model is a sum over nodes in their precisions and over tensors between two of them
that have other numbers: for two precisions of each node, the least is a minimum cut. What it leaves
in float goes there, neighbours by neighbours, where that saves more than the table may be wrong by.
Nodes only ever move to float, which loses nothing of accuracy.

Where the cut gives about float's time, that is not worth its roundings: a MobileNetV3 and an
EfficientNet run in float for the most part, with 8 and 19 dB more than all integers, which are
slower than float (benchmarks/results/defaults.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.static.choosing.proposals import in_float
from onnxq.static.choosing.weighing import in_us, precisions_of
from onnxq.static.reasons import TooLittleSaved

if TYPE_CHECKING:
    from onnxq.static.choosing.evidence import Evidence
    from onnxq.static.choosing.proposals import Proposal, Proposals
    from onnxq.static.prepared import Prepared

LEAST_GAIN = 0.05
"""Share of a model's time in float that integers have to save together: the table is wrong by 6% in
the median of whole networks (benchmarks/results/costs.md), and integers cost accuracy in any
case."""


def by_time(prepared: Prepared, evidence: Evidence) -> Proposals:
    """Proposes float for the integer nodes that the cut has in float, where the model gains."""
    if (weighing := evidence.weighing(prepared)) is None:
        return {}
    naming: dict[str, Proposal] = {}
    for nodes in weighing.slower():
        reason = weighing.reason(nodes)
        naming |= in_float(prepared.qconfig, nodes, reason) if reason else {}
    if not naming:
        return {}
    found = evidence.after(prepared, by_time.__name__, naming)
    return naming if weighing.ns(precisions_of(found)) < weighing.ns(weighing.precisions) else {}


def by_total_time(prepared: Prepared, evidence: Evidence) -> Proposals:
    """Proposes float for all integers that together save less than anybody would notice."""
    if (weighing := evidence.weighing(prepared)) is None:
        return {}
    quantized, float_ns = weighing.quantized(), weighing.ns({})
    saved = weighing.saved_by_integers(quantized)
    if not quantized or saved >= LEAST_GAIN * float_ns or LEAST_GAIN * float_ns <= weighing.run_ns:
        return {}
    reason = TooLittleSaved(len(quantized), in_us(float_ns), in_us(-saved), weighing.target)
    return in_float(prepared.qconfig, quantized, reason)
