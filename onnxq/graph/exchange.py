"""Exchanges constants for what is computed from them, once for all readers that want the same."""

from collections.abc import Hashable

import onnx_ir as ir

from onnxq.graph.edit import FreeNames, forget_unread, graph_of, home_of, new_initializer
from onnxq.graph.weights import is_private
from onnxq.operator.nodes import find_input


class ConstantExchange:
    """Gives nodes new constants, and lets those that ask for the same share one.

    A module that is called twice, net(a) and net(b), reads each weight twice. A pass sees one node
    at a time and gives the first reader a copy, the last one the weight itself, changed; `share`
    leaves one of the two.

    Args:
        model: whose nodes are given.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._names: FreeNames | None = None  # made when needed: most models need none
        self._origins: dict[ir.Value, Hashable] = {}
        self._new: set[ir.Value] = set()

    @property
    def modified(self) -> bool:
        """Whether a constant was exchanged."""
        return bool(self._origins)

    def origin(self, value: ir.Value | None) -> Hashable:
        """Origin of a constant: what it was made of and how; else the value itself."""
        return value if value is None else self._origins.get(value, value)

    def put(
        self, node: ir.Node, slot: int, tensor: ir.TensorProtocol, new_name: str, made_by: Hashable
    ) -> None:
        """Puts a tensor into a slot: under the present name where no one else reads it.

        `new_name`: of the constant where the present one is left to other readers.
        `made_by`: equal for two calls only if they make equal tensors of equal constants.
        """
        value = find_input(node, slot)
        origin = (self.origin(value), made_by)
        if value is None or not is_private(value):
            value = self._added(node, slot, new_name, tensor)
        tensor.name = value.name
        value.const_value = tensor
        value.shape = ir.Shape(tensor.shape.numpy())
        self._origins[value] = origin

    def _added(
        self, node: ir.Node, slot: int, new_name: str, tensor: ir.TensorProtocol
    ) -> ir.Value:
        """A new constant in the slot, of the graph of the one that it stands for."""
        present = find_input(node, slot)
        graph = graph_of(node) if present is None else home_of(present)
        self._names = self._names or FreeNames(self._model)
        value = new_initializer(graph, self._names.value(new_name), tensor)
        node.resize_inputs(max(len(node.inputs), slot + 1))
        node.replace_input_with(slot, value)
        self._new.add(value)
        return value

    def share(self) -> None:
        """Leaves one of all constants of a graph that were made of the same in the same way.

        One under its old name, if there is one. What is not read any more goes.
        """
        kept: dict[Hashable, ir.Value] = {}
        for value in sorted(self._origins, key=self._new.__contains__):
            one = kept.setdefault((value.graph, self._origins[value]), value)
            if one is value:
                continue
            value.replace_all_uses_with(one)
            forget_unread(value)
