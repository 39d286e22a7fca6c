"""Groups of units that are measured together: layers of one kind first, then parts of a kind.

A network of a hundred layers has a handful of kinds, so that a handful of passes tells which kind
costs what. Parts of the dearest kinds are measured next, in graph order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from onnxq.tuning.timing.node_group import NodeGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnxq.operator import Precision
    from onnxq.tuning.moving.units import Unit

SEPARATORS = "/._"
"""Characters behind which exporters begin another part of a name."""
MOST_PARTS = 16
"""Parts that are measured beside the kinds: each is a pass over a few samples."""
PARTS_OF_ONE = 4
"""Parts that a kind is measured in at once."""
LEAST_SHARE = 0.02
"""Share of all noise below which the parts of a kind are not worth a look."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Units of one kind, in graph order; at least one."""

    units: tuple[Unit, ...]

    @property
    def name(self) -> str:
        """Name that a user understands: "Conv + Relu, /stem/conv", "4 x Gemm, /head/a .. d"."""
        first, last = self.units[0], self.units[-1]
        if len(self.units) == 1:
            return f"{first.kind}, {first.anchor.name}"
        common = _beginning(first.anchor.name, last.anchor.name)
        end = max(common.rfind(separator) for separator in SEPARATORS) + 1
        return f"{len(self.units)} x {first.kind}, {first.anchor.name} .. {last.anchor.name[end:]}"

    @property
    def weights(self) -> int:
        """Numbers in the constants of their anchors."""
        return sum(unit.weights for unit in self.units)

    @property
    def group(self) -> NodeGroup:
        """The nodes, as what they cost is measured of them."""
        nodes = tuple(member.name for unit in self.units for member in unit.members)
        return NodeGroup(self.name, nodes)

    def parts(self, count: int) -> tuple[Alike, ...]:
        """The group in that many parts of about one length, in graph order; fewer of few units."""
        count = min(count, len(self.units))
        ends = [len(self.units) * part // count for part in range(count + 1)]
        return tuple(Alike(self.units[begin:end]) for begin, end in pairwise(ends))


def by_kind(units: Iterable[Unit]) -> tuple[Alike, ...]:
    """One group for each kind of units and forms that they can take, by first appearance."""
    found: dict[tuple[str, tuple[Precision, ...]], list[Unit]] = {}
    for unit in units:
        found.setdefault((unit.kind, unit.forms), []).append(unit)
    return tuple(Alike(tuple(alike)) for alike in found.values())


def apart(groups: Iterable[Alike], noise: Mapping[str, float]) -> tuple[Alike, ...]:
    """Groups that share no unit, the dearest first: parts in place of what they are parts of.

    Args:
        groups: that were measured; parts behind what they are parts of.
        noise: name of a group -> what it has; those without are left out.
    """
    known = [group for group in groups if group.name in noise]
    seen: set[str] = set()
    found: list[Alike] = []
    for group in reversed(known):  # parts first
        anchors = {unit.anchor.name for unit in group.units}
        if seen.isdisjoint(anchors):
            found.append(group)
            seen |= anchors
    return tuple(sorted(found, key=lambda group: -noise[group.name]))


def dearest_parts(groups: Iterable[Alike], noise: Mapping[str, float]) -> tuple[Alike, ...]:
    """Parts of the groups with the most noise, which are measured next.

    Args:
        groups: that were measured.
        noise: name of a group -> what it has.
    """
    known = [group for group in groups if group.name in noise and len(group.units) > 1]
    least = LEAST_SHARE * sum(noise.values())
    dear = [group for group in known if noise[group.name] >= least]
    dear.sort(key=lambda group: -noise[group.name])
    found: list[Alike] = []
    for group in dear:
        if len(found) + PARTS_OF_ONE <= MOST_PARTS:
            found += group.parts(PARTS_OF_ONE)
    return tuple(found)


def _beginning(one: str, other: str) -> str:
    """The characters that both texts begin with."""
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]
