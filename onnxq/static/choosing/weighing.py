"""Times of a model in the chosen precisions and all in float, and the cut between the two."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.sizes import Sizes
from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.ort.layouts import CONVOLUTION
from onnxq.static.choosing.proposals import open_entry
from onnxq.static.insertion.decision import Quantize
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import SlowerInIntegers
from onnxq.times import Estimate
from onnxq.times.changed_time import ALWAYS, NEVER, BinaryChoices, ChangedTime
from onnxq.times.time_model import (
    FLOATS,
    READS_INTEGERS,
    TensorState,
    TimeSource,
    Walked,
    changing,
    predicted,
    total_ns,
    walked,
)
from onnxq.times.work import moving


def precisions_of(prepared: Prepared) -> dict[str, Precision]:
    """Node name -> the precision in which it runs: of a bias inside of a float result, float."""
    precisions = {name: chosen.precision for name, chosen in prepared.precisions.items()}
    owners = {
        name: decision.folded_into
        for name, decision in prepared.decisions.items()
        if isinstance(decision, Quantize) and decision.folded_into
    }
    inside = [n for n, owner in owners.items() if precisions[owner] is Precision.INT8_FLOAT_OUTPUT]
    return precisions | dict.fromkeys(inside, Precision.FLOAT)


@dataclass(frozen=True, eq=False)
class _Both:
    """A model with the precisions that were chosen, and all in float."""

    integers: Walked
    floats: Walked


class Weighing:
    """Times of one model in two sets of precisions, and the cut between them."""

    def __init__(self, prepared: Prepared, sizes: Mapping[str, Sizes], costs: TimeSource) -> None:
        self._prepared, self._sizes, self._costs = prepared, sizes, costs
        self._model = prepared.model
        self.precisions = precisions_of(prepared)
        self._both = _Both(self._walked(self.precisions), self._walked({}))
        self._base = predicted(self._model, self._both.integers, costs)
        self._changed_time = ChangedTime(self._model, self._both.integers, costs)
        self._owner = {node: self._base_of(node) for node in self._model.graph}

    def _walked(self, precisions: Mapping[str, Precision]) -> Walked:
        return walked(self._model, precisions, self._sizes, self._costs)

    def ns(self, precisions: Mapping[str, Precision]) -> float:
        """Predicted nanoseconds of the model with these precisions."""
        return predicted(self._model, self._walked(precisions), self._costs).ns

    @property
    def target(self) -> str:
        """Machine that the times were measured on."""
        return self._costs.target

    @property
    def run_ns(self) -> float:
        """Nanoseconds that a run takes with nothing in it: less than that is not worth a word."""
        return self._base.run

    def quantized(self) -> list[ir.Node]:
        """Nodes that give integers and that nobody named; None: the time of one is not known."""
        giving = [node for node in self._model.graph if self._gives_integers(node)]
        found = [n for n in giving if open_entry(n, self._prepared.qconfig) is not None]
        return found if self.knows(found) else []

    def knows(self, nodes: list[ir.Node]) -> bool:
        """Whether the table has the times of all these nodes, in their precisions and in float."""
        return all(map(self._is_known, nodes))

    def _base_of(self, node: ir.Node) -> str | None:
        """Name of the node that carries this one out in integers; None: it runs in float."""
        decision = self._prepared.decisions[node_name(node)]
        if not isinstance(decision, Quantize):
            return None
        return decision.folded_into or node_name(node)

    def _gives_integers(self, node: ir.Node) -> bool:
        return self.precisions[node_name(node)] is Precision.INT8

    def slower(self) -> list[list[ir.Node]]:
        """Integer nodes that the least sum has in float, neighbours together, in graph order."""
        choices = BinaryChoices()
        known = {n for n in self._owner if self._is_known(n)}  # the precision may change of some
        open_ones = {n for n in known if open_entry(n, self._prepared.qconfig) is not None}
        fixed = {owner for node, owner in self._owner.items() if owner and node not in open_ones}
        for node, owner in self._owner.items():
            if owner is None:
                continue
            integers, floats = self._both.integers.own[node], self._both.floats.own[node]
            choices.costs(owner, total_ns(integers or ()), total_ns(floats or ()))
            if owner in fixed:
                choices.differing(ALWAYS, owner, math.inf)
        for value, state in self._both.floats.states.items():
            self._weigh(choices, value, state)
        kept = choices.true_ones()
        moved = [n for n, owner in self._owner.items() if owner is not None and owner not in kept]
        return neighbours(moved)

    def _is_known(self, node: ir.Node) -> bool:
        return None not in (self._both.integers.own[node], self._both.floats.own[node])

    def _weigh(self, choices: BinaryChoices, value: ir.Value, floats: TensorState) -> None:
        """Adds the conversions of a tensor, and changes of layout on either side of them."""
        producer = value.producer()
        readers = [n for n in dict.fromkeys(use.node for use in value.uses()) if n in self._owner]
        needs = {n: self._both.floats.reads[n] for n in readers if value in moving(n)}
        ends = {FLOATS} if value.is_graph_output() else set()
        if not needs and not ends:
            return
        quantized_reads = {
            n: self._both.integers.reads[n]
            for n in needs
            if self.precisions[node_name(n)] in READS_INTEGERS
        }
        source = self._choice(producer) if producer and self._gives_integers(producer) else NEVER
        integers = self._both.integers.states[value]
        to_integers = self._changing(value, floats, set(quantized_reads.values()))
        to_floats = self._changing(value, integers, {*needs.values(), *ends})
        quantized, floating = ("integers", value), ("floats", value)
        for node in quantized_reads:
            choices.differing(self._choice(node), quantized, math.inf)
        choices.differing(quantized, source, to_integers)
        if source != NEVER:
            for node in needs:
                reader = self._choice(node) if node in quantized_reads else NEVER
                choices.differing(floating, reader, math.inf)
            if ends:
                choices.differing(floating, NEVER, math.inf)
            choices.differing(source, floating, to_floats)
        self._weigh_layouts(choices, value, list(needs))

    def _weigh_layouts(
        self, choices: BinaryChoices, value: ir.Value, readers: list[ir.Node]
    ) -> None:
        """Adds changes of layout where all is of one kind: the node that is no convolution pays."""
        ends = [n for n in (value.producer(), *readers) if n is not None]
        payers = [n for n in ends if n.op_type != CONVOLUTION] or ends
        payer = NEVER if not payers else self._choice(payers[0])
        if payer == NEVER or not isinstance(payer, str):
            return
        for walk, is_quantized in ((self._both.floats, False), (self._both.integers, True)):
            state = walk.states[value]
            needs = {walk.reads[n] for n in readers}
            alike = {
                need for need in needs if need.has_integers is state.has_integers is is_quantized
            }
            ns = self._changing(value, state, alike)
            choices.costs(payer, ns if is_quantized else 0.0, 0.0 if is_quantized else ns)

    def _choice(self, node: ir.Node) -> Hashable:
        """The choice of the node: one with those that are carried out in it."""
        return self._owner.get(node) or NEVER

    def _changing(self, value: ir.Value, state: TensorState, needs: set[TensorState]) -> float:
        return total_ns(changing(value, state, needs, self._sizes, self._costs))

    def saved_by_integers(self, nodes: list[ir.Node]) -> float:
        """Nanoseconds that the model would take longer with these nodes in float."""
        moved = set(nodes)

        def precision_of(node: ir.Node) -> Precision:
            return Precision.FLOAT if node in moved else self._precision_of(node)

        changed = [node for node in nodes if self._precision_of(node) is not Precision.FLOAT]
        return self._changed_time.ns(changed, precision_of)

    def _precision_of(self, node: ir.Node) -> Precision:
        return self.precisions.get(node_name(node), Precision.FLOAT)

    def reason(self, nodes: list[ir.Node]) -> SlowerInIntegers | None:
        """Why they stay in float together; None where that saves too little to tell.

        That is: no more than the table may be wrong by and a run takes with nothing in it.
        """
        saved = -self.saved_by_integers(nodes)
        if saved <= self._error_ns(nodes) + self._base.run:
            return None
        model_us = in_us(self._base.ns)
        return SlowerInIntegers(len(nodes) - 1, in_us(saved), model_us, self._costs.target)

    def _error_ns(self, nodes: list[ir.Node]) -> float:
        """Error of the difference between both times of these nodes."""
        every: list[Estimate] = []
        for node in nodes:
            every += self._both.integers.own[node] or ()
            every += self._both.floats.own[node] or ()
        return math.hypot(*(each.error_ns for each in every))


def in_us(ns: float) -> float:
    """Microseconds to three digits, which `:g` writes without an exponent."""
    return float(f"{ns / 1e3:.3g}")


def neighbours(nodes: list[ir.Node]) -> list[list[ir.Node]]:
    """The nodes in groups that tensors connect, in their order."""
    place = {node: i for i, node in enumerate(nodes)}
    left, groups = dict.fromkeys(nodes), []
    while left:
        group, waiting = [], [next(iter(left))]
        del left[waiting[0]]
        while waiting:
            node = waiting.pop()
            group.append(node)
            around = [v.producer() for v in node.inputs if v is not None]
            around += [use.node for v in node.outputs for use in v.uses()]
            for other in around:
                if other in left:
                    del left[other]
                    waiting.append(other)
        groups.append(sorted(group, key=place.__getitem__))
    return groups
