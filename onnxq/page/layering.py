"""Layered drawing of a graph: where nodes lie, and which edges go by a rail; no colours.

    layer      longest path from an input; nodes that read constants alone lie right above a reader
    slot       that of the first producer, or the next one to the right that is free
    column     a fixed number of layers, so that a graph of a thousand layers fits a screen
    rail       line to the left of a column, for a tensor that is read there and does not lie right
               above its reader; one for all its readers in that column

Layers of all columns lie side by side: a line between two layers crosses no node. Every step is
linear in nodes and edges, but for sorts.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, groupby

from onnxq.page.content import Edge

Point = tuple[float, float]

LAYER = 76.0
"""Units from a layer to the next one."""
GAP = 18.0
"""Units between nodes of a layer."""
RAIL = 10.0
"""Units between rails."""
MARGIN = 28.0
"""Units around the drawing, and between columns."""
LEAST_LAYERS = 10
"""Layers of a column: shorter ones are hard to follow."""


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Places of nodes and edges.

    Attributes:
        centres: of each node.
        rails: x of the rail that each edge goes by; None: it goes straight to the next layer.
    """

    centres: tuple[Point, ...]
    rails: tuple[float | None, ...]
    width: float
    height: float


def layout_of(widths: Sequence[float], edges: Sequence[Edge], shape: float = 1.6) -> GraphLayout:
    """Places of a graph's nodes, in a drawing about `shape` times as wide as it is high."""
    if not widths:
        return GraphLayout((), (), 0.0, 0.0)
    layers = _longest_paths(len(widths), edges)
    slots = _slots(layers, edges)
    pitch, high = max(widths) + GAP, max(layers) + 1
    usual = pitch * (1 + sorted(slots)[len(slots) * 9 // 10])
    columns = max(math.sqrt(shape * high * LAYER / usual), 1.0)
    deep = max(math.ceil(high / columns), LEAST_LAYERS)
    cells = [divmod(layer, deep) for layer in layers]
    rails = _rails(cells, edges)
    lefts = _lefts(cells, slots, rails.values(), pitch)
    return GraphLayout(
        tuple(
            (lefts[column] + (slot + 0.5) * pitch, MARGIN + (row + 0.5) * LAYER)
            for (column, row), slot in zip(cells, slots, strict=True)
        ),
        tuple(
            None if (rail := rails.get(edge)) is None else lefts[rail.column] - RAIL * rail.place
            for edge in edges
        ),
        lefts[-1],
        min(deep, high) * LAYER + 2 * MARGIN,
    )


def _longest_paths(nodes: int, edges: Sequence[Edge]) -> list[int]:
    """The layer of each node; those without inputs lie right above their first reader."""
    layer = [0] * nodes
    readers: dict[int, list[int]] = defaultdict(list)
    has_input = [False] * nodes
    for source, reader in edges:
        readers[source].append(reader)
        has_input[reader] = True
    for node in range(nodes):  # they are in an order in which they can run
        for reader in readers[node]:
            layer[reader] = max(layer[reader], layer[node] + 1)
    for node in range(nodes):
        if not has_input[node] and readers[node]:
            layer[node] = min(layer[reader] for reader in readers[node]) - 1
    return layer


def _slots(layers: Sequence[int], edges: Sequence[Edge]) -> list[int]:
    """Place of each node in its layer, from the left; nodes without inputs lie on the right."""
    sources: dict[int, list[int]] = defaultdict(list)
    for source, reader in edges:
        sources[reader].append(source)
    slots = [0] * len(layers)
    by_layer = sorted(range(len(layers)), key=layers.__getitem__)
    for _, nodes in groupby(by_layer, layers.__getitem__):
        wanted = {node: min((slots[s] for s in sources[node]), default=0) for node in nodes}
        free = 0
        for node in sorted(wanted, key=lambda node: (not sources[node], wanted[node])):
            slots[node] = max(wanted[node], free)
            free = slots[node] + 1
    return slots


@dataclass(frozen=True, slots=True)
class _Rail:
    column: int
    place: int


def _rails(cells: Sequence[tuple[int, int]], edges: Sequence[Edge]) -> dict[Edge, _Rail]:
    """Rails of the edges that need one; tensors share a rail where one ends above the other."""
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    long = [edge for edge in edges if cells[edge[1]] != (cells[edge[0]][0], cells[edge[0]][1] + 1)]
    for source, reader in long:
        column, row = cells[reader]
        below = cells[source][1] + 1
        top, bottom = spans.get((column, source), (below, below))
        spans[column, source] = min(top, row), max(bottom, row)
    ends: dict[int, list[tuple[int, int]]] = defaultdict(list)  # of a column: (bottom, rail)
    found = {}
    for (column, source), (top, bottom) in sorted(spans.items(), key=lambda item: item[1]):
        used = ends[column]
        rail = heappop(used)[1] if used and used[0][0] < top else len(used)
        heappush(used, (bottom, rail))
        found[column, source] = _Rail(column, rail + 1)
    return {edge: found[cells[edge[1]][0], edge[0]] for edge in long}


def _lefts(
    cells: Sequence[tuple[int, int]], slots: Sequence[int], rails: Iterable[_Rail], pitch: float
) -> list[float]:
    """Where the nodes of each column begin, behind its rails; and where the drawing ends."""
    most_slots: dict[int, int] = defaultdict(int)
    most_rails: dict[int, int] = defaultdict(int)
    for (column, _), slot in zip(cells, slots, strict=True):
        most_slots[column] = max(most_slots[column], slot + 1)
    for rail in rails:
        most_rails[rail.column] = max(most_rails[rail.column], rail.place)
    wide = [most_slots[c] * pitch + MARGIN for c in range(len(most_slots))]
    ahead = accumulate(wide, initial=MARGIN)
    behind = accumulate(most_rails[c] * RAIL for c in range(len(wide) + 1))
    return [a + b for a, b in zip(ahead, behind, strict=True)]
