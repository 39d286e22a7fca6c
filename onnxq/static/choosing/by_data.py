"""Forms that the data forbid: nodes around tensors that 8 bits cannot hold.

A node that would read such a tensor in integers, or has to write it so, stays in float. A product
that gives it has a float result. What is left of sums and movements is asked for its reasons again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import OpCategory, Precision
from onnxq.operator.nodes import find_input
from onnxq.static.choosing.again import chosen_again
from onnxq.static.choosing.named_forms import NamedForm
from onnxq.static.choosing.rules import open_entry
from onnxq.static.noise.sensitive import sensitive
from onnxq.static.placing.decision import Quantize

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.core.reason import Reason
    from onnxq.static.choosing.named_forms import Naming
    from onnxq.static.prepared import Prepared
    from onnxq.static.statistics import Statistics


def by_data(prepared: Prepared, statistics: Statistics) -> Prepared:
    """The Prepared without integers of tensors that cannot be held in them.

    Args:
        prepared: with the forms that the rules chose.
        statistics: of its observed tensors.
    """
    found = sensitive(prepared, statistics)
    reasons = {
        member: found[source].reason
        for group in prepared.groups
        for source in group.observed
        if source in found
        for member in group.members
    }
    while reasons and (more := _forbidden(prepared, reasons)):
        prepared = chosen_again(prepared, more)
    return prepared


def _forbidden(prepared: Prepared, reasons: Mapping[str, Reason]) -> Naming:
    """Entries for the nodes around sensitive tensors, which the user did not name.

    Args:
        prepared: with the forms so far.
        reasons: tensor -> why integers do not hold it, its copies included.
    """
    naming: dict[str, NamedForm] = {}
    for node, _ in walk(prepared.model.graph):
        decision, entry = prepared.decisions[node_name(node)], open_entry(node, prepared.qconfig)
        if entry is None or not isinstance(decision, Quantize) or decision.folded_into:
            continue
        read = [reasons[t] for t in _read(node, decision) if t in reasons]
        written = [reasons[t] for t in decision.results if t in reasons]
        if read:
            naming[node_name(node)] = NamedForm(replace(entry, precision=Precision.FLOAT), read[0])
        elif written:
            product = (
                decision.rule.category is OpCategory.COMPUTE and not decision.rule.needs_output
            )
            form = Precision.INT8_FLOAT_OUTPUT if product else Precision.FLOAT
            naming[node_name(node)] = NamedForm(replace(entry, precision=form), written[0])
    return naming


def _read(node: ir.Node, decision: Quantize) -> list[str]:
    """Names of the activations that the node reads in integers."""
    values = (find_input(node, slot) for slot in decision.rule.activations)
    return [value_name(value) for value in values if value is not None]
