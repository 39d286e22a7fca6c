"""Layered drawing of a graph: where nodes lie, and by which points edges go; no colours.

    layer      longest path from an input; nodes that read constants alone lie right above a reader
    order      by barycentres of the neighbours, in sweeps
    place      each layer's nodes as near to their neighbours as their order and widths let them:
               least squares, by pooling adjacent violators
    columns    layers are broken into columns, where few edges cross, so that a graph of a thousand
               layers fits a screen

Every step is linear in nodes and edges, but for a sort of each layer. A tensor that is read several
layers below takes a lane of its own on the way, one for all its readers; where these lanes would be
many times the nodes, the longest go straight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from onnxq.page.content import Edge

Point = tuple[float, float]

LAYER = 76.0
"""Units from a layer to the next one."""
GAP = 18.0
"""Units between nodes of a layer."""
LANE = 10.0
"""Width of a lane."""
SWEEPS = 6
LANES_A_NODE, LANES_AT_LEAST = 8, 2_000


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Places of nodes and edges."""

    centres: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    gutters: tuple[Mapping[int, float], ...]
    width: float
    height: float


def layout_of(widths: Sequence[float], edges: Sequence[Edge], shape: float = 1.6) -> GraphLayout:
    """Places of a graph's nodes."""
    if not widths:
        return GraphLayout((), (), (), 0.0, 0.0)
    graph = _Layered(widths, edges)
    graph.sort()
    graph.place()
    lanes = graph.crossing()
    extents = [graph.extent(layer) for layer in range(len(graph.layers))]
    columns = columns_of(extents, lanes, LAYER, shape)
    points = [columns.point(graph.layer[item], graph.x[item]) for item in range(len(graph.x))]
    routes = [[points[item] for item in graph.way(edge)] for edge in edges]
    gutters = [_gutters(graph, columns, edge) for edge in edges]
    return GraphLayout(
        tuple(points[: len(widths)]),
        tuple(map(tuple, routes)),
        tuple(gutters),
        columns.width,
        columns.height,
    )


def _gutters(graph: _Layered, columns: DrawingColumns, edge: Edge) -> dict[int, float]:
    way = [columns.of[graph.layer[item]] for item in graph.way(edge)]
    turns = [index for index in range(len(way) - 1) if way[index] != way[index + 1]]
    return {index: columns.gutter(way[index + 1]) for index in turns}


class _Layered:
    """Nodes and lanes in layers.

    Attributes:
        layer: of each item: nodes, then lanes.
        layers: items of each layer, from left to right.
        x: centre of each item.
    """

    def __init__(self, widths: Sequence[float], edges: Sequence[Edge]) -> None:
        self._widths = list(widths)
        self._nodes = len(widths)
        self.layer = _longest_paths(self._nodes, edges)
        self._lanes: dict[tuple[int, int], int] = {}
        self._add_lanes(edges)
        self._above: list[list[int]] = [[] for _ in self._widths]
        self._below: list[list[int]] = [[] for _ in self._widths]
        for one, other in self._pieces(edges):
            self._below[one].append(other)
            self._above[other].append(one)
        self.layers: list[list[int]] = [[] for _ in range(max(self.layer) + 1)]
        for item, layer in enumerate(self.layer):
            self.layers[layer].append(item)
        self.x = [0.0] * len(self._widths)

    def _add_lanes(self, edges: Sequence[Edge]) -> None:
        lowest: dict[int, int] = {}
        for source, reader in edges:
            lowest[source] = max(lowest.get(source, 0), self.layer[reader])
        budget = LANES_A_NODE * self._nodes + LANES_AT_LEAST
        for source in sorted(lowest, key=lambda s: lowest[s] - self.layer[s]):
            long = lowest[source] - self.layer[source] - 1
            budget -= long
            if budget < 0:
                return
            for layer in range(self.layer[source] + 1, lowest[source]):
                self._lanes[source, layer] = len(self._widths)
                self._widths.append(LANE)
                self.layer.append(layer)

    def way(self, edge: Edge) -> list[int]:
        """Items that an edge goes by: its node, lanes, its reader."""
        source, reader = edge
        between = range(self.layer[source] + 1, self.layer[reader])
        lanes = [self._lanes[source, n] for n in between if (source, n) in self._lanes]
        return [source, *lanes, reader]

    def _pieces(self, edges: Sequence[Edge]) -> dict[Edge, None]:
        """Neighbours in layers next to each other, each pair once."""
        pieces: dict[Edge, None] = {}
        for edge in edges:
            way = self.way(edge)
            for piece in pairwise(way):
                if self.layer[piece[1]] == self.layer[piece[0]] + 1:
                    pieces[piece] = None
        return pieces

    def sort(self) -> None:
        """Puts each layer into an order in which few edges cross."""
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            beside = self._above if down else self._below
            for layer in self.layers if down else reversed(self.layers):
                self._sort_by(layer, beside)

    def _sort_by(self, layer: list[int], beside: Sequence[Sequence[int]]) -> None:
        def centre(item: int) -> float:
            near = beside[item]
            return sum(self.x[n] for n in near) / len(near) if near else self.x[item]

        layer.sort(key=centre)
        middle = (len(layer) - 1) / 2
        for place, item in enumerate(layer):
            self.x[item] = place - middle

    def place(self) -> None:
        """Gives each item its centre, in sweeps."""
        for layer in self.layers:
            self._set(layer, [0.0] * len(layer))
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            beside = self._above if down else self._below
            for layer in self.layers if down else reversed(self.layers):
                wanted = []
                for item in layer:
                    near = [self.x[n] for n in beside[item]]
                    wanted.append(median(near) if near else self.x[item])
                self._set(layer, wanted)

    def _set(self, layer: Sequence[int], wanted: Sequence[float]) -> None:
        ahead, starts = 0.0, []
        for place, item in enumerate(layer):
            if place:
                ahead += (self._widths[layer[place - 1]] + self._widths[item]) / 2 + GAP
            starts.append(ahead)
        free = [w - s for w, s in zip(wanted, starts, strict=True)]
        for item, x, start in zip(layer, pooled(free, [1.0] * len(free)), starts, strict=True):
            self.x[item] = x + start

    def crossing(self) -> list[int]:
        """Number of tensors that go on from each layer to the next one."""
        going: dict[int, set[int]] = defaultdict(set)
        for item, below in enumerate(self._below):
            if below:
                going[self.layer[item]].add(item)
        return [len(going[layer]) for layer in range(len(self.layers))]

    def extent(self, layer: int) -> tuple[float, float]:
        """Left and right end of a layer."""
        items = self.layers[layer]
        ends = [(self.x[i] - self._widths[i] / 2, self.x[i] + self._widths[i] / 2) for i in items]
        return min(low for low, _ in ends), max(high for _, high in ends)


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


def pooled(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The numbers nearest to those wanted that do not fall: isotonic regression.

    minimize sum w_i (x_i - wanted_i)^2  subject to x_i <= x_(i+1)
    """
    means: list[float] = []
    heavy: list[float] = []
    sizes: list[int] = []
    for one, weight in zip(wanted, weights, strict=True):
        mean, size = one, 1
        while means and means[-1] > mean:
            before = heavy.pop()
            mean = (mean * weight + means.pop() * before) / (weight + before)
            weight += before
            size += sizes.pop()
        means.append(mean)
        heavy.append(weight)
        sizes.append(size)
    return [mean for mean, size in zip(means, sizes, strict=True) for _ in range(size)]


# --- Columns that the layers of a drawing are broken into, each beside the one before it


GUTTER = 56.0
"""Units between columns, where edges go up to the next one."""
MARGIN = 28.0
LEAST_LAYERS = 10
"""Layers of a column: shorter ones are hard to follow."""
SLACK = 0.2
"""Share of a column's layers by which it may be shorter, to end where few edges cross."""


@dataclass(frozen=True, slots=True)
class DrawingColumns:
    """Columns of a drawing."""

    of: tuple[int, ...]
    starts: tuple[int, ...]
    shifts: tuple[float, ...]
    lefts: tuple[float, ...]
    layer: float
    width: float
    height: float

    def point(self, layer: int, x: float) -> tuple[float, float]:
        """Place of what lies at x in a layer."""
        column = self.of[layer]
        down = (layer - self.starts[column] + 0.5) * self.layer
        return x + self.shifts[column], down + MARGIN

    def gutter(self, column: int) -> float:
        """The x ahead of a column, where edges go up to it."""
        return self.lefts[column] - GUTTER / 2


def columns_of(
    extents: Sequence[tuple[float, float]], crossing: Sequence[int], layer: float, shape: float
) -> DrawingColumns:
    """Columns that give a drawing about the shape that is wanted."""
    starts = _starts(len(extents), _longest(extents, layer, shape), crossing)
    shifts: list[float] = []
    lefts: list[float] = []
    right = MARGIN
    for start, end in zip(starts, [*starts[1:], len(extents)], strict=True):
        low = min(extent[0] for extent in extents[start:end])
        high = max(extent[1] for extent in extents[start:end])
        shifts.append(right - low)
        lefts.append(right)
        right += high - low + GUTTER
    of = [0] * len(extents)
    for column, start in enumerate(starts):
        of[start:] = [column] * (len(extents) - start)
    deepest = max(b - a for a, b in zip(starts, [*starts[1:], len(extents)], strict=True))
    width, height = right - GUTTER + MARGIN, deepest * layer + 2 * MARGIN
    return DrawingColumns(
        tuple(of), tuple(starts), tuple(shifts), tuple(lefts), layer, width, height
    )


def _longest(extents: Sequence[tuple[float, float]], layer: float, shape: float) -> int:
    """Layers of a column, so that columns of a usual width give the shape."""
    widths = sorted(high - low for low, high in extents)
    usual = widths[int(0.9 * (len(widths) - 1))] + GUTTER
    columns = math.sqrt(shape * len(extents) * layer / usual)
    return max(math.ceil(len(extents) / max(columns, 1.0)), LEAST_LAYERS)


def _starts(layers: int, longest: int, crossing: Sequence[int]) -> list[int]:
    starts = [0]
    while layers - starts[-1] > longest:
        earliest = starts[-1] + max(int(longest * (1 - SLACK)), 1)
        ends = range(starts[-1] + longest - 1, earliest - 2, -1)  # the longest column first
        last = min(ends, key=lambda end: crossing[end])
        starts.append(last + 1)
    return starts
