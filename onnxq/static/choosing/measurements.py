"""Measurements, which deciders look at, and those of them that data and times alone suffice for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from onnxq.core.reason import Reason
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.sizes import Sizes
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import OpCategory, Precision
from onnxq.operator.nodes import find_input
from onnxq.static.choosing.proposals import Proposal, Proposals, in_float, open_entry
from onnxq.static.choosing.weighing import Weighing, in_us, precisions_of
from onnxq.static.insertion.decision import Quantize
from onnxq.static.noise.sensitive import sensitive
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import TooLittleSaved
from onnxq.static.statistics import Statistics
from onnxq.times.time_model import TimeSource

LEAST_GAIN = 0.05
"""Share of a model's time in float that integers have to save together: the table is wrong by 6% in
the median of whole networks (benchmarks/results/costs.md), and integers cost accuracy in any
case."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Data, times and the objective, as far as deciders look at them.

    Attributes:
        begun: with the precisions that were decided without data.
        times: (sizes of the values with one sample, times of nodes); None: they are not known.
        objective: SIZE stores the weights of float nodes.
        after: the Prepared with these proposals, and what the rules make of the rest then.
    """

    begun: Prepared
    statistics: Statistics
    times: tuple[Mapping[str, Sizes], TimeSource] | None
    objective: Objective
    after: Callable[[Prepared, str, Proposals], Prepared]

    @cached_property
    def sensitive(self) -> dict[str, Reason]:
        """Tensor -> why integers do not hold it, its copies included."""
        found = sensitive(self.begun, self.statistics)
        return {
            member: found[source].reason
            for group in self.begun.groups
            for source in group.observed
            if source in found
            for member in group.members
        }

    def weighing(self, prepared: Prepared) -> Weighing | None:
        """Times of the model in these precisions and in float; None: they are not known."""
        return None if self.times is None else Weighing(prepared, *self.times)


def by_data(prepared: Prepared, measurements: Measurements) -> Proposals:
    """Proposes floats around sensitive tensors, for nodes that the user did not name.

    A node that would read such a tensor in integers, or has to write it so, stays in float. A
    layer that gives it has a float result. What is left of sums and movements is asked for its
    reasons again.
    """
    reasons = measurements.sensitive
    if not reasons:
        return {}
    naming: dict[str, Proposal] = {}
    for node, _ in walk(prepared.model.graph):
        decision, entry = prepared.decisions[node_name(node)], open_entry(node, prepared.qconfig)
        if entry is None or not isinstance(decision, Quantize) or decision.folded_into:
            continue
        values = (find_input(node, slot) for slot in decision.rule.activations)
        names = (value_name(value) for value in values if value is not None)
        read = [reasons[t] for t in names if t in reasons]
        written = [reasons[t] for t in decision.results if t in reasons]
        if read:
            naming[node_name(node)] = Proposal(replace(entry, precision=Precision.FLOAT), read[0])
        elif written:
            is_layer = (
                decision.rule.category is OpCategory.COMPUTE and not decision.rule.needs_output
            )
            precision = Precision.INT8_FLOAT_OUTPUT if is_layer else Precision.FLOAT
            naming[node_name(node)] = Proposal(replace(entry, precision=precision), written[0])
    return naming


def by_time(prepared: Prepared, measurements: Measurements) -> Proposals:
    """Proposes float for the integer nodes that the cut has in float, where the model gains.

    The time of a model is a sum over nodes in their precisions and over tensors between two of them
    that have other numbers: for two precisions of each node, the least is a minimum cut. What it
    leaves in float goes there, neighbours by neighbours, where that saves more than the table may
    be wrong by. Nodes only ever move to float, which loses nothing of accuracy.

    Where the cut gives about float's time, that is not worth its roundings: a MobileNetV3 and an
    EfficientNet run in float for the most part, with 8 and 19 dB more than all integers, which are
    slower than float (benchmarks/results/defaults.md).
    """
    if (weighing := measurements.weighing(prepared)) is None:
        return {}
    naming: dict[str, Proposal] = {}
    for nodes in weighing.slower():
        reason = weighing.reason(nodes)
        naming |= in_float(prepared.qconfig, nodes, reason) if reason else {}
    if not naming:
        return {}
    found = measurements.after(prepared, by_time.__name__, naming)
    return naming if weighing.ns(precisions_of(found)) < weighing.ns(weighing.precisions) else {}


def by_total_time(prepared: Prepared, measurements: Measurements) -> Proposals:
    """Proposes float for all integers that together save less than anybody would notice."""
    if (weighing := measurements.weighing(prepared)) is None:
        return {}
    quantized, float_ns = weighing.quantized(), weighing.ns({})
    saved = weighing.saved_by_integers(quantized)
    if not quantized or saved >= LEAST_GAIN * float_ns or LEAST_GAIN * float_ns <= weighing.run_ns:
        return {}
    reason = TooLittleSaved(len(quantized), in_us(float_ns), in_us(-saved), weighing.target)
    return in_float(prepared.qconfig, quantized, reason)
