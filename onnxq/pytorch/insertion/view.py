"""A prepared ONNX form beside the training graph of the same program, as annotation sees them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.ort import facts
from onnxq.ort.version import OLDEST
from onnxq.static.insertion.decision import Quantize

if TYPE_CHECKING:
    from torch import fx

    from onnxq.pytorch.insertion.names import Names
    from onnxq.static.insertion.decision import Decision
    from onnxq.static.prepared import Prepared


@dataclass(frozen=True)
class View:
    """Both graphs of a program, which annotation reads and never changes.

    Attributes:
        traced: the training graph.
        names: leads values to its nodes.
        prepared: the ONNX form of the same program, and its decisions.
    """

    traced: fx.GraphModule
    names: Names
    prepared: Prepared

    @cached_property
    def nodes(self) -> list[ir.Node]:
        """All nodes of the ONNX form, bodies included, in order."""
        return [node for node, _ in walk(self.prepared.model.graph)]

    @cached_property
    def values(self) -> dict[str, ir.Value]:
        """Value by name: inputs, results, constants, in order."""
        graph = self.prepared.model.graph
        found = {value_name(v): v for v in graph.inputs}
        found |= {str(v.name): v for node in self.nodes for v in node.outputs}
        return found | dict(graph.initializers)

    @cached_property
    def fusible(self) -> set[ir.Node]:
        """Nodes that ONNX Runtime may run in integers where Q and DQ stand around them."""
        pairs = walk(self.prepared.model.graph)
        return {node for node, loop in pairs if loop is None and _may_fuse(node)}

    @cached_property
    def constants(self) -> set[str]:
        """Initializers that are quantized as activations."""
        return {tensor for group in self.prepared.groups for tensor in group.constants}

    def decision(self, node: ir.Node) -> Decision:
        """The decision on a node."""
        return self.prepared.decisions[node_name(node)]

    def quantized(self, node: ir.Node | None) -> Quantize | None:
        """How a node is quantized; None: it is not."""
        decision = None if node is None else self.decision(node)
        return decision if isinstance(decision, Quantize) else None

    def around(self, tensor: str) -> tuple[str, ...]:
        """Quantized nodes for which a tensor is rounded: those that read it, and what makes it."""
        value = self.values[tensor]
        producer = value.producer()
        found = [node_name(node) for node in value.consumers() if self.quantized(node)]
        made = self.quantized(producer)
        if producer is not None and made is not None:
            found += [node_name(producer), *([made.folded_into] if made.folded_into else [])]
        return tuple(dict.fromkeys(found))


def _may_fuse(node: ir.Node) -> bool:
    floats = any(v.type == ir.TensorType(ir.DataType.FLOAT) for v in node.outputs)
    return floats and not facts.of(node, OLDEST).stays_float
