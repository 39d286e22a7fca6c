"""Tensors that hold numbers that stand for infinity, which no scale holds beside the data."""

from collections.abc import Mapping

import onnx_ir as ir

from onnxq.core.reason import Reason
from onnxq.operator import Float, InfiniteOperand, OpCategory
from onnxq.static.insertion.candidates import Candidate
from onnxq.static.insertion.context import Context
from onnxq.static.reasons import ReadsInfinity


def by_infinity(context: Context, candidates: Mapping[ir.Node, Candidate]) -> dict[ir.Node, Reason]:
    """Leaves candidates in float that read infinities; movement hands these on, selections do not.

    A border of -inf before a MaxPool, say: Pad stays float by its own rule, and so must MaxPool.
    """
    unbounded: set[ir.Value] = set()
    found: dict[ir.Node, Reason] = {}
    for node, _ in context.order:
        candidate = candidates.get(node)
        if candidate is None:
            verdict = context.rules.verdict(node)
            if isinstance(verdict, Float) and isinstance(verdict.reason, InfiniteOperand):
                unbounded.update(node.outputs)
            continue
        if unbounded.isdisjoint(node.inputs[slot] for slot in candidate.rule.activations):
            continue
        found[node] = ReadsInfinity()
        if candidate.rule.category is OpCategory.MOVEMENT and not candidate.rule.selects:
            unbounded.update(node.outputs)
    return found
