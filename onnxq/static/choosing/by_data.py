"""Forms that the data forbid: nodes around tensors that 8 bits cannot hold.

A node that would read such a tensor in codes, or has to write it so, stays in float. A product that
gives it has a float result. What is left of sums and movements is asked for its reasons again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import NodeForm, Role
from onnxq.operator.nodes import find_input
from onnxq.static.choosing.rules import by_rules, open_entry
from onnxq.static.noise.unfit import TYPICAL_DB, kept, unfit
from onnxq.static.placing.decision import Quantize
from onnxq.static.planning.activation_qparams import tensor_qparams
from onnxq.static.prepare import named_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import onnx_ir as ir

    from onnxq.qconfig import Entry
    from onnxq.static.choosing.named import Naming
    from onnxq.static.noise.unfit import Unfit
    from onnxq.static.prepare import Prepared
    from onnxq.static.statistics import Statistics


def by_data(prepared: Prepared, statistics: Statistics) -> Prepared:
    """The Prepared without codes of tensors that cannot be held in them.

    Args:
        prepared: with the forms that the rules chose.
        statistics: of its observed tensors.
    """
    tensors = tensor_qparams(prepared, statistics)[0]
    found = {
        name: one
        for name, one in unfit(prepared, statistics, tensors).items()
        if one.kept.worst_db < TYPICAL_DB
    }
    if not found:
        return prepared
    every = [one.worst_db for one in kept(prepared, statistics, tensors).values()]
    while more := _forbidden(prepared, found, outweighing_db(every)):
        named = by_rules(
            prepared.model,
            prepared.qconfig,
            prepared.target,
            prepared.output_codes,
            prepared.chosen.naming(more),
        )
        prepared = named_again(prepared, named)
    return prepared


def outweighing_db(worst_db: Iterable[float]) -> float:
    """SQNR below which one rounding outweighs all others, were they like the median one.

    Behind normalizations with outlier channels all products of a model lose alike. Without them in
    integers nothing would be gained: they are measured against each other, and nothing else.
    """
    known = [db for db in worst_db if db < math.inf]
    return median(known) - 10 * math.log10(len(known)) if known else -math.inf


def _forbidden(prepared: Prepared, found: Mapping[str, Unfit], products_db: float) -> Naming:
    """Entries for the nodes around unfit tensors, which the user did not name.

    Args:
        prepared: with the forms so far.
        found: tensor -> why codes do not hold it.
        products_db: what a product with weights bears of what it reads.
    """
    unfits = {
        member: found[source]
        for group in prepared.groups
        for source in group.sources
        if source in found
        for member in group.members
    }
    naming: dict[str, tuple[Entry, str]] = {}
    for node, _ in walk(prepared.model.graph) if unfits else ():
        decision, entry = prepared.decisions[node_name(node)], open_entry(node, prepared.qconfig)
        if entry is None or not isinstance(decision, Quantize) or decision.folded_into:
            continue
        product = decision.rule.role is Role.COMPUTE and not decision.rule.needs_output
        bearable = products_db if product else math.inf
        read = [unfits[t] for t in _read(node, decision) if t in unfits]
        lost = [one for one in read if one.kept.worst_db < bearable]
        written = [unfits[t] for t in decision.results if t in unfits]
        if lost:
            naming[node_name(node)] = (replace(entry, form=NodeForm.FLOAT), lost[0].reason)
        elif written:
            form = NodeForm.FLOAT_RESULT if product else NodeForm.FLOAT
            naming[node_name(node)] = (replace(entry, form=form), written[0].reason)
    return naming


def _read(node: ir.Node, decision: Quantize) -> list[str]:
    """Names of the activations that the node reads in codes."""
    values = (find_input(node, slot) for slot in decision.rule.activations)
    return [value_name(value) for value in values if value is not None]
