"""Scales of sums for which every machine computes the same codes.

ARM adds tensors of codes (QLinearAdd, which Add, Sub and HardSigmoid become) in fixed point, x86 in
float32 with fused multiply-adds. For nearly all codes both round to the same; near ties they may
not: with any scales, 0 to 3 of all 65,536 pairs of codes differ, with scales that are powers of two
up to a quarter of them. Whether a pair differs depends on the last bits of the scales. So the scale
of the result is raised by up to 1 in 1,000, usually by 1 in a million, to the first that makes all
pairs agree.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.operator import NodePlan
from onnxq.stages.decision import Quantize, attribute_values, node_name, value_name, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import onnx_ir as ir

    from onnxq.qparams import QParams
    from onnxq.stages.decision import Decision
    from onnxq.stages.prepare import Prepared

ROUNDS = 4  # a result may be an operand of another sum, or share its scale with one
FINEST, COARSEST = -22, -10  # powers of two that a scale is raised by, relative to itself
MULTIPLES = (1, 3, 5, 7)


def let_sums_agree(
    prepared: Prepared,
    decisions: Mapping[str, Decision],
    tensors: dict[str, QParams],
    notes: list[str],
) -> None:
    """Raises scales in `tensors` until every sum of codes is the same on all machines.

    Args:
        prepared: canonical graph, and the groups of tensors that share a scale.
        decisions: node name -> Quantize or Float.
        tensors: activation tensor -> qparams; changed in place.
        notes: what a user should know; grows where no such scale is near.
    """
    groups = {member: group.members for group in prepared.groups for member in group.members}
    nodes = [node for node, _ in walk(prepared.model.graph)]
    sums = [(n, d) for n in nodes if isinstance(d := decisions[node_name(n)], Quantize)]
    for _ in range(ROUNDS):
        upset = [(n, d) for n, d in sums if not _agrees(n, d, tensors)]
        if not upset:
            return
        for node, decision in upset:
            if not _agrees(node, decision, tensors):  # another one may have helped
                _raise(node, decision, groups[decision.results[0]], tensors)
    left = [node_name(n) for n, d in sums if not _agrees(n, d, tensors)]
    notes += [
        f"'{name}': ARM may round some of its sums to the next code; no scale near avoids it"
        for name in left
    ]


def _agrees(node: ir.Node, decision: Quantize, tensors: Mapping[str, QParams]) -> bool:
    """Whether the node computes the same codes on every machine."""
    operator = catalog.find(node.op_type, node.domain)
    rule = decision.rule
    if operator is None or decision.folded_into or len(decision.results) != len(rule.outputs):
        return True
    inputs = [node.inputs[slot] for slot in range(len(node.inputs))]
    outputs = dict(zip(rule.outputs, (tensors[t] for t in decision.results), strict=True))
    return operator.agrees(
        NodePlan(
            tuple(
                tensors[value_name(value)]
                if value is not None and slot in rule.activations
                else None
                for slot, value in enumerate(inputs)
            ),
            tuple(outputs.get(slot) for slot in range(len(node.outputs))),
        ),
        attribute_values(node),
    )


def _raise(
    node: ir.Node, decision: Quantize, members: tuple[str, ...], tensors: dict[str, QParams]
) -> None:
    """The nearest scale of the group for which the node agrees; as it was where there is none."""
    before = {member: tensors[member] for member in members}
    for factor in _factors():
        for member, qparams in before.items():
            scale = np.asarray(qparams.scale * np.float32(factor), np.float32)
            tensors[member] = dataclasses.replace(qparams, scale=scale)
        if _agrees(node, decision, tensors):
            return
    tensors.update(before)


def _factors() -> Iterator[float]:
    """From 1 on, upwards."""
    steps = (m * 2.0**power for power in range(FINEST, COARSEST) for m in MULTIPLES)
    yield from (1 + step for step in sorted(steps))
