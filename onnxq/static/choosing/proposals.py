"""Proposals of deciders, and what was decided so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from onnxq.core.reason import Reason
from onnxq.graph.walk import node_name
from onnxq.operator import Precision
from onnxq.qconfig import Entry, QConfig, QConfigMapping
from onnxq.static.insertion.context import Context
from onnxq.static.insertion.insert_quantizers import QuantizerInsertion, insert_quantizers
from onnxq.static.insertion.inserted import Inserted, inserted, with_reasons


@dataclass(frozen=True, slots=True)
class Proposal:
    """Precision that a decider proposes for one node."""

    entry: Entry
    reason: Reason


Proposals = Mapping[str, Proposal]
"""Node name -> what is proposed for it."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Proposals so far; of those for one node, the last one holds.

    Attributes:
        mapping: what was asked for, with an entry for each node that has a proposal.
        chain: node name -> (decider, proposal) of each decider that had something to say of it.
    """

    mapping: QConfigMapping
    chain: Mapping[str, tuple[tuple[str, Proposal], ...]] = field(default_factory=dict)

    @property
    def reasons(self) -> dict[str, Reason]:
        """Node name -> why its precision was chosen, of each node that has a proposal."""
        return {name: said[-1][1].reason for name, said in self.chain.items()}

    def following(self, decider: str, more: Proposals) -> Decided:
        """Adds the proposals of one more decider."""
        entries = {name: proposal.entry for name, proposal in more.items()}
        chain = {n: (*self.chain.get(n, ()), (decider, p)) for n, p in more.items()}
        mapping = replace(self.mapping, nodes={**self.mapping.nodes, **entries})
        return Decided(mapping, {**self.chain, **chain})


@dataclass(frozen=True, eq=False)
class SoFar:
    """State of the decisions on a model, and the quantizers that follow from it."""

    context: Context
    decided: Decided

    @cached_property
    def insertion(self) -> QuantizerInsertion:
        """Where the quantizers sit."""
        return insert_quantizers(self.context, self.decided.mapping)

    @property
    def inserted(self) -> Inserted:
        """The insertion, and all that follows from it."""
        made = inserted(self.context, self.decided.mapping, self.insertion)
        return with_reasons(made, self.decided.reasons)

    @property
    def left(self) -> list[tuple[ir.Node, str | None]]:
        """(node, its loop) of the nodes for which no decider has proposed anything."""
        return [at for at in self.context.order if node_name(at[0]) not in self.decided.chain]

    def following(self, decider: str, more: Proposals) -> SoFar:
        """Adds the proposals of one more decider."""
        return SoFar(self.context, self.decided.following(decider, more)) if more else self


def open_entry(node: ir.Node, asked: QConfigMapping) -> QConfig | None:
    """The entry of a node that nobody named; None: somebody did, or it is no static one."""
    if asked.explicit_for_node(node_name(node), node.op_type):
        return None
    entry = asked.for_node(node_name(node), node.op_type)
    return entry if entry is not None and entry.precision is None else None


def in_float(asked: QConfigMapping, nodes: Iterable[ir.Node], reason: Reason) -> Proposals:
    """FLOAT with that reason, for those of the nodes that nobody named."""
    entries = {node_name(node): open_entry(node, asked) for node in nodes}
    return {
        name: Proposal(replace(entry, precision=Precision.FLOAT), reason)
        for name, entry in entries.items()
        if entry is not None
    }
