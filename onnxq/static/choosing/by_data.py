"""Precisions that the data forbid: nodes around tensors that 8 bits cannot hold.

A node that would read such a tensor in integers, or has to write it so, stays in float. A product
that gives it has a float result. What is left of sums and movements is asked for its reasons again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import OpCategory, Precision
from onnxq.operator.nodes import find_input
from onnxq.static.choosing.proposals import Proposal, open_entry
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxq.static.choosing.evidence import Evidence
    from onnxq.static.choosing.proposals import Proposals
    from onnxq.static.prepared import Prepared


def by_data(prepared: Prepared, evidence: Evidence) -> Proposals:
    """Proposes floats around sensitive tensors, for nodes that the user did not name."""
    reasons = evidence.sensitive
    if not reasons:
        return {}
    naming: dict[str, Proposal] = {}
    for node, _ in walk(prepared.model.graph):
        decision, entry = prepared.decisions[node_name(node)], open_entry(node, prepared.qconfig)
        if entry is None or not isinstance(decision, Quantize) or decision.folded_into:
            continue
        read = [reasons[t] for t in _read(node, decision) if t in reasons]
        written = [reasons[t] for t in decision.results if t in reasons]
        if read:
            naming[node_name(node)] = Proposal(replace(entry, precision=Precision.FLOAT), read[0])
        elif written:
            product = (
                decision.rule.category is OpCategory.COMPUTE and not decision.rule.needs_output
            )
            precision = Precision.INT8_FLOAT_OUTPUT if product else Precision.FLOAT
            naming[node_name(node)] = Proposal(replace(entry, precision=precision), written[0])
    return naming


def _read(node: ir.Node, decision: Quantize) -> list[str]:
    """Names of the activations that the node reads in integers."""
    values = (find_input(node, slot) for slot in decision.rule.activations)
    return [value_name(value) for value in values if value is not None]
