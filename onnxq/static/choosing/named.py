"""A qconfig in which forms were named for some nodes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.qconfig import Entry, QConfigMapping

Naming = Mapping[str, "tuple[Entry, str]"]
"""Node name -> (its entry, why)."""


@dataclass(frozen=True, slots=True)
class Named:
    """Forms named so far.

    Attributes:
        mapping: what was asked for, with an entry for each node whose form was chosen.
        reasons: node name -> why, of each of them.
    """

    mapping: QConfigMapping
    reasons: Mapping[str, str] = field(default_factory=dict)

    def naming(self, more: Naming) -> Named:
        """Forms named so far and more; of a node that was named before, the later one holds."""
        nodes = {**self.mapping.nodes, **{name: entry for name, (entry, _) in more.items()}}
        reasons = {**self.reasons, **{name: reason for name, (_, reason) in more.items()}}
        return Named(replace(self.mapping, nodes=nodes), reasons)
