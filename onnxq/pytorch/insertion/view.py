"""A prepared ONNX form beside the training graph of the same program, as annotation sees them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx_ir as ir
import torch
from torch import fx
from torch.export import ExportedProgram

from onnxq.graph.origins import origins_of
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.ort import facts
from onnxq.ort.version import OLDEST
from onnxq.pytorch.modules.adapter import DROPOUTS
from onnxq.pytorch.programs.own_gradients import FunctionCall
from onnxq.pytorch.programs.training_graph import PROGRAM_NODES
from onnxq.static.insertion.decision import Decision, Quantize
from onnxq.static.prepared import Prepared

# --- Leads values of a program's ONNX form to the nodes of its training graph, by recorded names.
#
# value  --origins-->  node of the program  <--PROGRAM_NODES--  node of the training graph

_aten = torch.ops.aten
_COPIES = {
    *DROPOUTS,
    _aten.clone.default,
    _aten.contiguous.default,
    _aten.detach.default,
    _aten.alias.default,
}
"""Operators that give their first argument as it is, in eval mode."""
_COPIES_OF_EQUAL_SHAPE = {
    _aten.view.default,
    _aten.view_as.default,
    _aten.reshape.default,
    _aten.flatten.using_ints,
    _aten.expand.default,
    _aten.slice.Tensor,
    _aten.to.dtype,
    _aten.to.device,
    _aten.to.dtype_layout,
    _aten._to_copy.default,  # noqa: SLF001  # an operator
    _aten.type_as.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
}
"""Operators that do so where shape and dtype of the result are those of the argument."""
_PADS = {_aten.constant_pad_nd.default, _aten.pad.default}


class Names:
    """Nodes of a training graph, by the nodes of the program that they stand for."""

    def __init__(
        self,
        traced: fx.GraphModule,
        program: ExportedProgram,
        functions: Sequence[FunctionCall] = (),
    ) -> None:
        self._program = {node.name: node for node in program.graph.nodes}
        self._inside = {name: call for call in functions for name in call.inside}
        self._of: dict[str, fx.Node] = {}
        for node in traced.graph.nodes:
            for name in node.meta.get(PROGRAM_NODES, ())[-1:]:
                self._of.setdefault(name, node)
        self._of_parameters = set[fx.Node]()
        for node in traced.graph.nodes:
            sources = node.all_input_nodes
            computed = node.op == "call_function" and bool(sources)
            if node.op == "get_attr" or (computed and self._of_parameters.issuperset(sources)):
                self._of_parameters.add(node)

    def nodes(self, value: ir.Value) -> list[fx.Node]:
        """The nodes that compute the value, or copy it."""
        found = [self._of[name] for name in origins_of(value) if name in self._of]
        return [node for node in found if is_tensor(node)]

    def function_around(self, value: ir.Value) -> str:
        """Name of the torch.autograd.Function that computes the value on its way; "": none."""
        found = [self._inside[name] for name in origins_of(value) if name in self._inside]
        return found[0].function.__name__ if found else ""

    def is_copy(self, node: fx.Node) -> bool:
        """Whether a node gives its first argument as it is (dropout in eval mode, identity)."""
        step = self._step(node)
        target: Any = None if step is None else step.target
        if node.op == "call_module" and len(node.all_input_nodes) > 1:
            return False  # of an autograd.Function: nothing says which one it copies
        if target in _COPIES:
            return True
        if target not in _COPIES_OF_EQUAL_SHAPE:
            return False
        source = node.all_input_nodes[0]
        return is_tensor(source) and _form(source) == _form(node)

    def is_zero_padding(self, node: fx.Node) -> bool:
        """Whether a node puts zeros around its first argument, which is folded into a Conv."""
        step = self._step(node)
        if step is None or step.target not in _PADS:
            return False
        rest = [argument for argument in (*step.args[2:], *step.kwargs.values()) if argument]
        return all(argument in ("constant", 0) for argument in rest)

    def is_of_parameters(self, node: fx.Node) -> bool:
        """Whether a node computes a tensor of parameters and numbers alone."""
        return node in self._of_parameters

    def _step(self, node: fx.Node) -> fx.Node | None:
        names = node.meta.get(PROGRAM_NODES, ())
        return self._program.get(names[-1]) if names else None


def is_tensor(node: fx.Node) -> bool:
    """Whether a node gives one tensor of floats."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _form(node: fx.Node) -> tuple[torch.dtype, tuple[str, ...]]:
    """Type and shape; sizes that are dynamic by their formulas, which no guard comes of."""
    value = node.meta["val"]
    return value.dtype, tuple(map(str, value.shape))


@dataclass(frozen=True)
class View:
    """Both graphs of a program, which annotation reads and never changes."""

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
        found = {node for node, loop in walk(self.prepared.model.graph) if loop is None}
        floats = ir.TensorType(ir.DataType.FLOAT)
        found = {node for node in found if any(v.type == floats for v in node.outputs)}
        return {node for node in found if not facts.of(node, OLDEST).stays_float}

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
