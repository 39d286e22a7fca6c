"""Scales of a plan's sums and products, raised until every machine computes the same integers.

onnxq.qdq.sum_scales says why; scales found in training go through it too.

Where an operand is repeated over the other, one machine may differ from itself: ONNX Runtime takes
for the first operand now one, now the other, by the layout in which the sum runs. Scales of such
sums are raised for every target.
"""

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import attribute_values, node_name, value_name, walk
from onnxq.operator import Operator
from onnxq.operator.nodes import constant
from onnxq.qdq.sum_scales import Among, Sum, raise_scales
from onnxq.qparams import QParams
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.prepared import Prepared


def with_agreeing_sums(
    prepared: Prepared, decisions: Mapping[str, Decision], tensors: Mapping[str, QParams]
) -> tuple[dict[str, QParams], list[str]]:
    """`tensors`, scales raised until sums and products of integers are alike on all machines.

    Notes.

    Returns:
        (tensor -> qparams, a note for each sum that no scale near helps).
    """
    groups = {member: group.members for group in prepared.groups for member in group.members}
    sums = find_sums(prepared, decisions)
    if not prepared.target.agreeing_sums:
        nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
        repeated = [
            replace(one, among=Among.ORDERS) for one in sums if _may_repeat(nodes[one.name])
        ]
        return raise_scales(repeated, groups, tensors)[0], []
    raised, left = raise_scales(sums, groups, tensors)
    notes = [
        f"'{one.name}': ARM, x86 without AVX2 or WebAssembly may round some of its results to the "
        "next integer; no scale near avoids it"
        for one in left
    ]
    return raised, notes


def find_sums(prepared: Prepared, decisions: Mapping[str, Decision]) -> list[Sum]:
    """The nodes that add or multiply integers, in graph order, with the names of the graph."""
    found = []
    for node, _ in walk(prepared.model.graph):
        decision = decisions[node_name(node)]
        operator = catalog.find(node.op_type, node.domain)
        if operator is None or type(operator).agrees is Operator.agrees:
            continue
        if not isinstance(decision, Quantize) or decision.folded_into:
            continue
        if len(decision.results) == len(decision.rule.outputs):
            found.append(_sum(node, decision))
    return found


def _may_repeat(node: ir.Node) -> bool:
    """Whether the node may add a number, or a tensor of another shape, to its first operand."""
    shapes = [None if value is None else value.shape for value in node.inputs]
    return len(shapes) < 2 or None in shapes or shapes[0] != shapes[1]


def _sum(node: ir.Node, decision: Quantize) -> Sum:
    rule = decision.rule
    results = dict(zip(rule.outputs, decision.results, strict=True))
    inputs = [
        value_name(value) if value is not None and slot in rule.activations else None
        for slot, value in enumerate(node.inputs)
    ]
    outputs = [results.get(slot) for slot in range(len(node.outputs))]
    name, attributes = node_name(node), attribute_values(node)
    constants = {
        slot: x
        for slot in range(len(node.inputs))
        if slot not in rule.activations and (x := constant(node, slot)) is not None
    }
    return Sum(
        name, node.op_type, node.domain, tuple(inputs), tuple(outputs), attributes, constants
    )
