"""State that goes round without a linear layer on its way: rounded in every batch, it drifts.

    c' = f c + i g    the cell of an LSTM that is written out: f is near 1 while it remembers

Integers of c leave an error of up to half an LSB each time, which f carries on: 1 / (1 - f) of them
add up, and changes of less than half an LSB are lost whole: half the decibels of Silero's voice
detector of opset 18 (scripts/corpus.md, "all integers"). A layer on the way begins anew, and what
only copies integers rounds nothing.
"""

import onnx_ir as ir

from onnxq.graph.walk import IF, bodies
from onnxq.operator import OpCategory
from onnxq.operator.nodes import find_input
from onnxq.static.choosing.proposals import Proposal, Proposals, SoFar, in_float
from onnxq.static.insertion.context import Context
from onnxq.static.reasons import CarriesState

NOT_LINEAR = (OpCategory.ELEMENTWISE, OpCategory.MOVEMENT, OpCategory.CLAMP)


def by_state(so_far: SoFar) -> Proposals:
    """Proposes float on the way of a state from batch to batch that has no linear layer on it.

    Args:
        so_far: of a model; branches are looked into, bodies of loops are not. Nodes that the
            user names are left to him.
    """
    context = so_far.context
    if not context.feedback:
        return {}
    model, steps = context.model, _steps(context)
    inputs = {str(value.name): value for value in model.graph.inputs}
    outputs = {str(value.name): value for value in model.graph.outputs}
    naming: dict[str, Proposal] = {}
    for output, fed in context.feedback.items():
        way = _between(steps, inputs[fed], outputs[output])
        if not any(context.rules.category(node) is OpCategory.ELEMENTWISE for node in way):
            continue
        naming |= in_float(context.asked, way, CarriesState(fed))
    return naming


_Step = tuple[list["ir.Value"], list["ir.Value"], "ir.Node | None"]
"""Values that one becomes the other of, and the node that does it; None: the end of a branch."""


def _steps(context: Context) -> list[_Step]:
    """Steps without a linear layer, in the order in which they are taken."""
    found: list[_Step] = []
    for node, loop in context.order:
        if loop is not None:
            continue
        if node.op_type == IF:
            for body in bodies(node):
                results = zip(body.outputs, node.outputs, strict=True)
                found += [([inner], [outer], None) for inner, outer in results]
        rule = context.rules.find(node)
        if rule is not None and rule.category in NOT_LINEAR:
            read = [find_input(node, slot) for slot in rule.activations]
            found.append(([v for v in read if v is not None], list(node.outputs), node))
    return found


def _between(steps: list[_Step], start: ir.Value, end: ir.Value) -> list[ir.Node]:
    """The nodes by which one value becomes the other."""
    ahead, behind = {start}, {end}
    for read, written, _ in steps:
        if ahead.intersection(read):
            ahead.update(written)
    for read, written, _ in reversed(steps):
        if behind.intersection(written):
            behind.update(read)
    return [
        node
        for read, written, node in steps
        if node is not None and ahead.intersection(read) and behind.intersection(written)
    ]
