"""Time of a model in which a few nodes change their precision: only what is around them."""

import functools
import heapq
import itertools
import math
from collections import ChainMap, Counter, deque
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnxq.operator import Precision
from onnxq.times import Change, Costs
from onnxq.times.microbenchmarks.link import READS, Parts, changing_link, tensors_of
from onnxq.times.time_model import (
    FLOATS,
    ChangeTime,
    TensorState,
    TimeSource,
    Walked,
    changing,
    step_of,
    total_ns,
)
from onnxq.times.timed_runs import profiled
from onnxq.times.work import moving

Needs = Counter[TensorState | None]
"State -> how many readers want a tensor in it; None: readers that the node ahead computes."


class ChangedTime:
    """Differences of a model's time, each found by looking at the changes alone."""

    def __init__(self, model: ir.Model, found: Walked, costs: TimeSource) -> None:
        self._found, self._costs = found, costs
        self._place = {node: i for i, node in enumerate(model.graph)}
        self._nodes = list(model.graph)
        self._needs: dict[ir.Value, Needs] = {v: Counter([FLOATS]) for v in model.graph.outputs}
        for node, state in found.reads.items():
            for value in dict.fromkeys(moving(node)):
                self._needs.setdefault(value, Counter())[state] += 1

    def ns(
        self, changed: Collection[ir.Node], precision_of: Callable[[ir.Node], Precision | None]
    ) -> float:
        """Nanoseconds that the model takes longer where these nodes have other precisions.

        That is the difference of two `predicted`, to rounding. A node walks again where its
        precision, that of a source, or the state of what it reads is another.
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
            step = step_of(node, precision_of(node), precision_of, known, found.sizes, self._costs)
            ns += total_ns(step.own or ()) - total_ns(found.own.get(node) or ())
            before = found.reads.get(node)
            if step.reads != before:
                for value in dict.fromkeys(moving(node)):
                    more = needs.setdefault(value, Counter())
                    more[step.reads] += 1
                    more[before] -= 1
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
        """Nanoseconds of the changes of one tensor until all readers have theirs."""
        count = self._needs.get(value, Counter())
        more = more or Counter()
        needs = {s for s in (*count, *more) if s and count[s] + more[s] > 0}
        if not needs:
            return 0.0
        return total_ns(changing(value, state, needs, self._found.sizes, self._costs))


# --- Least sum of costs of two-valued choices, some of which cost when they differ: a minimum
#     cut
#
#     sum of cost(x)              each x is True or False
#     + sum of cost(x and not y)  for pairs
#
# An infinite cost forbids. Dinic's algorithm: paths of least length are filled until there is none.


ALWAYS, NEVER = ("source", 0), ("sink", 0)
"""Choices that are made: True, and False."""


@dataclass(frozen=True, eq=False)
class BinaryChoices:
    """Choices between True and False, and what they cost.

    Attributes:
        capacities: x -> y -> cost where x is True and y False.
    """

    capacities: dict[Hashable, dict[Hashable, float]] = field(default_factory=dict)

    def costs(self, x: Hashable, if_true: float, if_false: float) -> None:
        """Adds what a choice costs on its own, at least 0."""
        self.differing(x, NEVER, if_true)
        self.differing(ALWAYS, x, if_false)

    def differing(self, x: Hashable, y: Hashable, cost: float) -> None:
        """Adds what it costs where x is True and y is False, at least 0."""
        forth = self.capacities.setdefault(x, {})
        forth[y] = forth.get(y, 0.0) + cost
        self.capacities.setdefault(y, {}).setdefault(x, 0.0)

    def true_ones(self) -> set[Hashable]:
        """The choices that are True where the sum is least; as few as there can be."""
        left = {x: dict(ys) for x, ys in self.capacities.items()}
        for end in (ALWAYS, NEVER):
            left.setdefault(end, {})
        while True:
            depths = _depths(left, ALWAYS)
            if NEVER not in depths:
                return set(depths) - {ALWAYS}
            _fill(left, depths)


def _depths(left: dict[Hashable, dict[Hashable, float]], source: Hashable) -> dict[Hashable, int]:
    """Length of the shortest path to each node that something can still flow to."""
    depths = {source: 0}
    waiting = deque([source])
    while waiting:
        x = waiting.popleft()
        for y, capacity in left[x].items():
            if capacity > 0 and y not in depths:
                depths[y] = depths[x] + 1
                waiting.append(y)
    return depths


def _fill(left: dict[Hashable, dict[Hashable, float]], depths: dict[Hashable, int]) -> None:
    """Fills shortest paths from ALWAYS to NEVER until there is none of that length."""
    ahead = {x: list(ys) for x, ys in left.items()}
    path: list[Hashable] = [ALWAYS]
    while path:
        x = path[-1]
        if x == NEVER:
            steps = list(itertools.pairwise(path))
            least = min(left[a][b] for a, b in steps)
            assert math.isfinite(least), "a choice can be neither"
            for a, b in steps:
                left[a][b] -= least
                left[b][a] += least
            full = next(i for i, (a, b) in enumerate(steps) if left[a][b] <= 0)
            del path[full + 1 :]
        elif not ahead[x]:
            path.pop()
            if path:
                ahead[path[-1]].pop()
        elif left[x][ahead[x][-1]] > 0 and depths.get(ahead[x][-1]) == depths[x] + 1:
            path.append(ahead[x][-1])
        else:
            ahead[x].pop()


# --- Times of conversions and changes of layout on this machine: small models, profiled


SHAPES = ((1, 16, 8, 8), (1, 64, 56, 56))
"""Shapes of two tensors, of 1,024 and 200,704 elements; times are the line through both."""
SECONDS = 0.2
"""CPU seconds that go into each."""


@functools.cache  # of the machine, not of a model
def change_times() -> dict[str, ChangeTime]:
    """Value of a Change -> its time; a part of a second."""
    few, many = (_timed(shape) for shape in SHAPES)
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    return {change: _line(sizes, [few[change], many[change]]) for change in few}


def _timed(shape: tuple[int, ...]) -> dict[str, float]:
    """Value of a Change -> nanoseconds for a tensor of that shape.

    Models of their own for small tensors: writing times down takes as long as they do.
    """
    parts, feeds = Parts(), tensors_of(shape)
    names = {
        change.value: changing_link(change, shape[1])(parts, READS.get(change, "x"))
        for change in Change
    }
    (run,) = profiled([parts.model(feeds, list(names.values()))], feeds, SECONDS)
    return {change: run.ns.get(name, 0.0) for change, name in names.items()}


def changes_of(costs: Costs) -> dict[str, ChangeTime]:
    """The same from a table."""
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    found = {}
    for change in Change:
        estimates = [costs.change(change, size) for size in sizes]
        if None not in estimates:
            found[change.value] = _line(sizes, [each.ns for each in estimates if each is not None])
    return found


def _line(sizes: list[int], ns: list[float]) -> ChangeTime:
    """The line through two measurements; no part of it is below 0."""
    slope = max((ns[1] - ns[0]) / (sizes[1] - sizes[0]), 0.0)
    return ChangeTime(max(ns[0] - slope * sizes[0], 0.0), slope)
