"""Layers that are measured together: those of one layer type, or a part of these.

A network of a hundred layers has a handful of layer types, so that a handful of passes tells which
layer type costs what. Parts of the dearest layer types are measured next, in graph order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnxq.operator import Precision
    from onnxq.tuning.search.quantization_groups import QuantizationGroup

SEPARATORS = "/._"
"""Characters behind which exporters begin another part of a name."""
MOST_PARTS = 16
"""Parts that are measured beside the layer types: each is a pass over a few samples."""
PARTS_OF_ONE = 4
"""Parts that a layer type is measured in at once."""
LEAST_SHARE = 0.02
"""Share of all noise below which the parts of a layer type are not worth a look."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of the canonical float model that take their precisions together.

    Attributes:
        name: for people, and for journals: unique among the groups of a model.
    """

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layers:
    """Quantization groups of one layer type, in graph order; at least one."""

    groups: tuple[QuantizationGroup, ...]

    @property
    def name(self) -> str:
        """Name that a user understands: "Conv + Relu, /stem/conv", "4 x Gemm, /head/a .. d"."""
        first, last = self.groups[0], self.groups[-1]
        if len(self.groups) == 1:
            return f"{first.layer_type}, {first.anchor.name}"
        common = _beginning(first.anchor.name, last.anchor.name)
        end = max(common.rfind(separator) for separator in SEPARATORS) + 1
        ends = f"{first.anchor.name} .. {last.anchor.name[end:]}"
        return f"{len(self.groups)} x {first.layer_type}, {ends}"

    @property
    def weights(self) -> int:
        """Numbers in the constants of their anchors."""
        return sum(group.weights for group in self.groups)

    @property
    def node_group(self) -> NodeGroup:
        """The nodes, as what they cost is measured of them."""
        nodes = tuple(member.name for group in self.groups for member in group.members)
        return NodeGroup(self.name, nodes)

    def parts(self, count: int) -> tuple[Layers, ...]:
        """The layers in that many parts of about one length, in graph order."""
        count = min(count, len(self.groups))
        ends = [len(self.groups) * part // count for part in range(count + 1)]
        return tuple(Layers(self.groups[begin:end]) for begin, end in pairwise(ends))


def by_layer_type(groups: Iterable[QuantizationGroup]) -> tuple[Layers, ...]:
    """The layers of each layer type, which can take the same precisions, by first appearance."""
    found: dict[tuple[str, tuple[Precision, ...]], list[QuantizationGroup]] = {}
    for group in groups:
        found.setdefault((group.layer_type, group.precisions), []).append(group)
    return tuple(Layers(tuple(alike)) for alike in found.values())


def dearest_parts(layer_sets: Iterable[Layers], noise: Mapping[str, float]) -> tuple[Layers, ...]:
    """Parts of the layer_sets with the most noise, which are measured next."""
    known = [layers for layers in layer_sets if layers.name in noise and len(layers.groups) > 1]
    least = LEAST_SHARE * sum(noise.values())
    dear = [layers for layers in known if noise[layers.name] >= least]
    dear.sort(key=lambda layers: -noise[layers.name])
    found: list[Layers] = []
    for layers in dear:
        if len(found) + PARTS_OF_ONE <= MOST_PARTS:
            found += layers.parts(PARTS_OF_ONE)
    return tuple(found)


def _beginning(one: str, other: str) -> str:
    """The characters that both texts begin with."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]
