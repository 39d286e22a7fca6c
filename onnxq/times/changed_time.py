"""Time of a model of which a few nodes take another form: only what is around them is walked."""

from __future__ import annotations

import heapq
from collections import ChainMap, Counter
from typing import TYPE_CHECKING

from onnxq.times.time_model import FLOATS, changing, step_of, total_ns
from onnxq.times.work import moving

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import onnx_ir as ir

    from onnxq.operator import Precision
    from onnxq.times import Costs
    from onnxq.times.time_model import TensorState, Walked

    Needs = Counter[TensorState]
    """State -> how many readers want a tensor in it."""


class ChangedTime:
    """Differences of a model's time, each in the time of what changes and not of the whole model.

    Args:
        model: float, canonical.
        found: the model with its forms.
        costs: table of the machine.
    """

    def __init__(self, model: ir.Model, found: Walked, costs: Costs) -> None:
        self._found, self._costs = found, costs
        self._place = {node: i for i, node in enumerate(model.graph)}
        self._nodes = list(model.graph)
        self._needs: dict[ir.Value, Needs] = {v: Counter([FLOATS]) for v in model.graph.outputs}
        for node, state in found.reads.items():
            for value in dict.fromkeys(moving(node)):
                self._needs.setdefault(value, Counter())[state] += 1

    def ns(self, changed: Collection[ir.Node], form_of: Callable[[ir.Node], Precision]) -> float:
        """Nanoseconds that the model takes longer where these nodes have other forms.

        That is the difference of two `predicted`, to rounding. A node walks again where its form,
        that of a source, or the state of what it reads is another.

        Args:
            changed: nodes whose forms are others.
            form_of: forms that all nodes have then.
        """
        found = self._found
        states: dict[ir.Value, TensorState] = {}
        needs: dict[ir.Value, Needs] = {}
        around = {*changed, *(reader for node in changed for reader in self._readers(node))}
        waiting = sorted(self._place[node] for node in around)  # a sorted list is a heap
        ns = 0.0
        while waiting:
            node = self._nodes[heapq.heappop(waiting)]
            known = ChainMap(states, found.states)
            step = step_of(node, form_of(node), form_of, known, found.sizes, self._costs)
            ns += total_ns(step.own or ()) - total_ns(found.own[node] or ())
            if step.reads != found.reads[node]:
                for value in dict.fromkeys(moving(node)):
                    more = needs.setdefault(value, Counter())
                    more[step.reads] += 1
                    more[found.reads[node]] -= 1
            if all(found.states[value] == step.writes for value in node.outputs):
                continue
            states |= dict.fromkeys(node.outputs, step.writes)
            for reader in self._readers(node):
                if reader not in around:
                    around.add(reader)
                    heapq.heappush(waiting, self._place[reader])
        for value in dict.fromkeys((*states, *needs)):
            if value in found.states:
                state, change = states.get(value, found.states[value]), needs.get(value)
                ns += self._changes_ns(value, state, change)
                ns -= self._changes_ns(value, found.states[value], None)
        return ns

    def _readers(self, node: ir.Node) -> list[ir.Node]:
        """Nodes of the main graph that read its results."""
        return [u.node for value in node.outputs for u in value.uses() if u.node in self._place]

    def _changes_ns(self, value: ir.Value, state: TensorState, more: Needs | None) -> float:
        """Nanoseconds of the changes of one tensor until all readers have theirs.

        Args:
            value: the tensor.
            state: in which its producer leaves it.
            more: readers that come on top, or fewer; None: none.
        """
        count = self._needs.get(value, Counter())
        needs = {s for s in (*count, *(more or ())) if count[s] + (more[s] if more else 0) > 0}
        if not needs:
            return 0.0
        return total_ns(changing(value, state, needs, self._found.sizes, self._costs))
