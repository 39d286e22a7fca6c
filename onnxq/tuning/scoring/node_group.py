"""A group of nodes that a search decides on together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of the canonical float model that take their forms together.

    Attributes:
        name: for people, and for journals: unique among the groups of a model.
        nodes: their names, in graph order.
    """

    name: str
    nodes: tuple[str, ...]
