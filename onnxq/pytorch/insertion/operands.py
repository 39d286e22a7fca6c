"""Operands of quantized nodes, held against those of the nodes of a training graph."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from torch import fx, nn

from onnxq.graph.walk import node_name, value_name
from onnxq.observers.weight_observation import limited_to
from onnxq.operator import OpCategory
from onnxq.operator.nodes import tensor_of
from onnxq.pytorch.insertion.tensors import OWN_BACKWARD, Tensors, with_observer
from onnxq.pytorch.insertion.view import View, is_tensor
from onnxq.pytorch.modules.parametrized_layer import weighted_layer
from onnxq.pytorch.modules.transposed import along_channels
from onnxq.pytorch.nn.intrinsic import BATCH_NORMS
from onnxq.pytorch.train.annotations import AnnotatedWeight, Unannotated
from onnxq.qconfig import Part
from onnxq.static.insertion.decision import Quantize, weight_observer

EQUAL_NUMBERS = 1e-6  # a root that was taken in float32, or in float64


class Operands:
    """Weights, activations and numbers that quantized nodes read."""

    def __init__(self, view: View, tensors: Tensors) -> None:
        self._view = view
        self._tensors = tensors
        self._folded = _folded(view)
        self._taken: set[str] = set()  # nodes of weights
        self.weights: list[AnnotatedWeight] = []

    def annotate(self) -> Iterator[Unannotated]:
        """Sees to each quantized node; gives what keeps it from being annotated."""
        for node in self._view.nodes:
            decision = self._view.quantized(node)
            if decision is None or decision.folded_into is not None:
                continue
            # what moves or clamps shares qparams with its input, which Tensors saw to
            if decision.rule.category not in (OpCategory.MOVEMENT, OpCategory.CLAMP):
                for name, reason in self._annotate(node, decision):
                    yield Unannotated(name, reason, (node_name(node),))

    def core(self, node: ir.Node) -> fx.Node | None:
        """The node that computes the first of these: the ONNX node's result, then with its bias."""
        results = [v for v in node.outputs if v.name]
        results += self._folded.get(node_name(node), [])
        found = [n for v in results for n in self._view.names.nodes(v)]
        weighted = self._view.quantized(node)
        if weighted is None or weighted.rule.weight is None:
            return next(iter(found), None)
        modules = [n for n in found if self._called(n)[1] or weighted_layer(self._view.traced, n)]
        unused = [n for n in modules if n.name not in self._taken]
        return next(iter([*unused, *found]), None)

    def _annotate(self, node: ir.Node, decision: Quantize) -> Iterator[tuple[str, str]]:
        core = self.core(node)
        function = self._view.names.function_around(node.outputs[0])
        if function and (core is None or decision.rule.weight is not None):
            yield node_name(node), f"it lies inside {function}, {OWN_BACKWARD}"
            return
        if core is None:
            yield node_name(node), self._tensors.where(value_name(node.outputs[0]))
            return
        wanted = [v for slot in decision.rule.activations if (v := node.inputs[slot]) is not None]
        found = [self._argument(node, x, wanted) for x in self._activations(node, decision, core)]
        weight = self._weighted(node, core) if decision.rule.weight is not None else None
        if isinstance(weight, str):
            found = [(node_name(node), weight)]
        for value in filter(ir.Value.is_initializer, wanted):
            if value.name not in self._tensors.of[value_name(value)].nodes.values():
                found.append(self._number(core, value))
        missing = [one for one in found if one is not None]
        yield from missing
        if isinstance(weight, AnnotatedWeight) and not missing:
            self.weights.append(weight)
            self._taken.add(weight.node)

    # --- weights

    def _weighted(self, node: ir.Node, core: fx.Node) -> AnnotatedWeight | str:
        """The module with the weight, or why there is none."""
        called, norm = self._called(core)
        layer = weighted_layer(self._view.traced, called)
        if layer is None:
            return (
                f"its weight is used by '{called.name}' ({called.op} {called.target}), which is no "
                "call of a module with that weight"
            )
        part = self._weight_part(node, layer[1])
        return AnnotatedWeight(called.name, layer[0], norm, node_name(node), part)

    def _called(self, core: fx.Node) -> tuple[fx.Node, str | None]:
        """The node that calls the layer, and that of the batch norm that is folded into it."""
        if isinstance(module_of(self._view.traced, core), BATCH_NORMS):
            return core.all_input_nodes[0], core.name
        return core, None

    def _weight_part(self, node: ir.Node, layer: nn.Module) -> Part:
        """The weight's part of the qconfig, as the plan would use it, for torch's layout."""
        qconfig, target = self._view.prepared.qconfig, self._view.prepared.target
        decision = self._view.quantized(node)
        entry = qconfig.for_node(node_name(node), node.op_type)
        assert decision is not None, "the caller looked"
        assert entry is not None, "a node without an entry is float"
        saturating = decision.rule.saturating_pairs
        limit = target.weight_qmax_saturating if saturating else target.weight_qmax
        spec = limited_to(weight_observer(node, decision.rule, qconfig), limit, ch_axis=0)
        return along_channels(with_observer(entry.weight, spec), layer)

    # --- activations

    def _activations(self, node: ir.Node, decision: Quantize, core: fx.Node) -> list[fx.Node]:
        """Tensors that the node of the training graph reads, but for its parameters."""
        if decision.rule.weight is not None:
            called, _ = self._called(core)
            return [x for x in called.args[:1] if isinstance(x, fx.Node)]
        slots = decision.rule.activations
        others = {
            found.name
            for slot, value in enumerate(node.inputs)
            if value is not None and slot not in slots
            for found in self._view.names.nodes(value)
        }
        return [x for x in core.all_input_nodes if is_tensor(x) and x.name not in others]

    def _argument(
        self, node: ir.Node, argument: fx.Node, wanted: list[ir.Value]
    ) -> tuple[str, str] | None:
        """Sees to it that an argument of a quantized node comes from one of the right groups."""
        groups = [self._tensors.of[value_name(v)] for v in wanted]
        source = self._tensors.source(argument)
        if any(self._tensors.group_of(source) is group for group in groups):
            return None
        for value in wanted:  # a constant
            free = self._tensors.group_of(argument) is None
            if free and argument in self._view.names.nodes(value):
                self._tensors.put(argument, value_name(value))
                return None
        if self._is_put_apart(argument, wanted):
            return None
        first = value_name(wanted[0])
        if not (wanted[0].is_initializer() or self._view.names.nodes(wanted[0])):
            return first, self._tensors.where(first)
        return (
            first,
            f"'{argument.name}', which the module's {node.op_type} '{node_name(node)}' reads, is "
            "not this tensor",
        )

    def _is_put_apart(self, argument: fx.Node, wanted: list[ir.Value]) -> bool:
        """Sees to a parameter that equals another one, for which ONNX has one constant."""
        if not self._view.names.is_of_parameters(argument):
            return False
        annotated = self._tensors.group_of(argument)
        shape = [str(size) for size in argument.meta["val"].shape]
        for value in wanted:
            tensor = value_name(value)
            alone = self._tensors.of[tensor].group.members == (tensor,)
            if not value.is_initializer() or not alone or value.shape is None:
                continue
            if annotated is not None:
                return tensor in annotated.tensors
            if shape == [str(size) for size in value.shape]:
                self._tensors.put_apart(argument, tensor)
                return True
        return False

    def _number(self, core: fx.Node, value: ir.Value) -> tuple[str, str] | None:
        """A constant that is a number among the node's arguments."""
        name, array = value_name(value), tensor_of(value).numpy()
        for position, argument in enumerate(core.args):
            number = argument.meta.get("val") if isinstance(argument, fx.Node) else argument
            if isinstance(number, int | float) and np.allclose(
                array, number, rtol=EQUAL_NUMBERS, atol=0
            ):
                self._tensors.of[name].numbers.append((core.name, position, name, float(number)))
                return None
        return name, f"'{core.name}' has no argument with these values"


def _folded(view: View) -> dict[str, list[ir.Value]]:
    """Name of a node -> results of those that its kernel carries out, but for clamps."""
    found: dict[str, list[ir.Value]] = {}
    for node in view.nodes:
        decision = view.quantized(node)
        if decision is not None and decision.folded_into and decision.rule.clamp is None:
            found.setdefault(decision.folded_into, []).extend(node.outputs)
    return found


def module_of(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """The module that a node calls; None for a function, method or attribute."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None
