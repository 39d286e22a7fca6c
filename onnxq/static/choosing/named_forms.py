"""A qconfig in which forms were named for some nodes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxq.core.reason import Reason
    from onnxq.qconfig import Entry, QConfigMapping


@dataclass(frozen=True, slots=True)
class NamedForm:
    """Form that was named for one node.

    Attributes:
        entry: of the node, with the form in it.
        reason: why.
    """

    entry: Entry
    reason: Reason


Naming = Mapping[str, NamedForm]
"""Node name -> the form that is named for it."""


@dataclass(frozen=True, slots=True)
class NamedForms:
    """Forms named so far.

    Attributes:
        mapping: what was asked for, with an entry for each node whose form was chosen.
        reasons: node name -> why, of each of them.
    """

    mapping: QConfigMapping
    reasons: Mapping[str, Reason] = field(default_factory=dict)

    def naming(self, more: Naming) -> NamedForms:
        """Forms named so far and more; of a node that was named before, the later one holds."""
        nodes = {**self.mapping.nodes, **{name: named.entry for name, named in more.items()}}
        reasons = {**self.reasons, **{name: named.reason for name, named in more.items()}}
        return NamedForms(replace(self.mapping, nodes=nodes), reasons)
