"""Stages of a model: nodes up to the next tensor that products read, then these products.

    nodes ahead of group 1 | products of group 1 ... nodes up to group 2 | products of group 2 ...

Products of one tensor are a group: they see the same inputs, and are quantized together as soon as
these are known. A stage's nodes hold products of earlier groups alone, whose codes are final; each
node runs once, so that the work is linear in the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph.walk import node_name, value_name
from onnxq.operator.nodes import input_at
from onnxq.weights.subgraphs import Segment, segments_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from onnxq.core.arrays import Array, Singles
    from onnxq.weights.plan_weights import InBlocks, WeightPlan


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tensor whose rows products multiply.

    Attributes:
        tensor: its name.
        turned: whether its columns are these rows: the last axis but one is summed over.
    """

    tensor: str
    turned: bool

    def rows(self, array: Array) -> Singles:
        """float32 (rows, inputs) of the tensor's array."""
        last = np.swapaxes(array, -1, -2) if self.turned else array
        flat = last.reshape(-1, last.shape[-1])
        return np.ascontiguousarray(flat, np.float32)


@dataclass(frozen=True, slots=True)
class Group:
    """Products that are quantized together.

    Attributes:
        inputs: that they share; None: nothing can be known of them, as in bodies of loops, or
            nothing has to be, as of tables.
        nodes: their names, in the model's order.
    """

    inputs: Inputs | None
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A group, and what has to run before its inputs are known.

    Attributes:
        segment: of nodes; None: none.
        group: of products; None: the model ends behind the segment.
    """

    segment: Segment | None
    group: Group | None


def stages_of(model: ir.Model, plan: WeightPlan) -> list[Stage]:
    """The stages of a model, in order.

    Args:
        model: canonical; its nodes are in an order in which they can run.
        plan: names the products.
    """
    left = dict(plan.quantized)
    grouped: dict[Inputs, list[str]] = {}
    for node in model.graph:
        decision = left.get(node_name(node))
        if decision is not None and not decision.table:
            del left[node_name(node)]
            grouped.setdefault(inputs_of(node, decision), []).append(node_name(node))
    groups = {nodes[0]: Group(inputs, tuple(nodes)) for inputs, nodes in grouped.items()}
    found = [Stage(None, Group(None, tuple(left)))] if left else []
    outputs = [value_name(value) for value in model.graph.outputs]
    segments = segments_of(model.graph, outputs, groups)
    if segments and segments[0].layer:  # a product comes first
        found.append(Stage(None, groups[segments[0].layer]))
    for segment, behind in zip(segments, [*segments[1:], None], strict=True):
        found.append(Stage(segment, groups[behind.layer] if behind else None))
    return found


def inputs_of(node: ir.Node, decision: InBlocks) -> Inputs:
    """The tensor beside a product's weight, and how it lies."""
    left = decision.slot == 0
    turned = left
    if node.op_type == "Gemm":
        turned = left != bool(node.attributes.get_int("transB" if left else "transA", 0))
    return Inputs(value_name(input_at(node, 1 - decision.slot)), turned)


def last_reads(stages: Sequence[Stage]) -> dict[str, int]:
    """Tensor -> index of the last stage that reads it, to run or to see."""
    found: dict[str, int] = {}
    for index, stage in enumerate(stages):
        if stage.segment is not None:
            found |= dict.fromkeys(stage.segment.reads, index)
        if stage.group is not None and stage.group.inputs is not None:
            found[stage.group.inputs.tensor] = index
    return found
