"""Every value and every node gets a name of its own in the whole model."""

from collections.abc import Iterator

import onnx_ir as ir

from onnxq.graph.weights import renamed


class UniqueNames(ir.passes.InPlacePass):
    """name(a) != name(b) for all values a, b of all graphs; the same for nodes.

    Who comes first keeps the name: inputs, outputs and initializers of the main graph, then its
    nodes' outputs in order, then the bodies. Optional outputs that are absent keep the name "",
    ONNX's sign for it.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        values, nodes = _Taken(), _Taken()
        modified = False
        for graph in model.graphs():
            for value in _values(graph):
                modified |= _name_value(value, values)
        for graph in model.graphs():
            for node in graph:
                wanted = (
                    node.name
                    or f"{node.op_type}_{node.outputs[0].name if node.outputs else 'node'}"
                )
                name = nodes.claim(node, wanted)
                modified |= name != node.name
                node.name = name
        return ir.passes.PassResult(model, modified)

    def ensures(self, model: ir.Model) -> None:
        """Raises PostconditionError where two values have one name."""
        owner: dict[str, ir.Value] = {}
        for graph in model.graphs():
            for value in _values(graph):
                if value.name and owner.setdefault(value.name, value) is not value:
                    raise ir.passes.PostconditionError(f"two values are named '{value.name}'")


class _Taken:
    """Who has which name."""

    def __init__(self) -> None:
        self._owner: dict[str, object] = {}
        self._next: dict[str, int] = {}

    def claim(self, owner: object, wanted: str) -> str:
        """`wanted`, or wanted_1, wanted_2 ... where another owner has it."""
        name = wanted
        while self._owner.setdefault(name, owner) is not owner:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{self._next[wanted]}"
        return name


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.outputs
    yield from tuple(graph.initializers.values())  # renaming changes the dictionary
    for node in graph:
        yield from node.outputs


def _name_value(value: ir.Value, taken: _Taken) -> bool:
    if not value.name and not (value.uses() or value.is_graph_output() or value.is_graph_input()):
        producer = value.producer()
        if producer is None or len(producer.outputs) > 1:
            return False  # an optional output that the model does not ask for
    name = taken.claim(value, value.name or "value")
    tensor = value.const_value
    if value.is_initializer() and tensor is not None and tensor.name != name:
        # writing a model gives each tensor its value's name; other models may share this one
        value.const_value = renamed(tensor, name)
    if name == value.name:
        return False
    value.name = name
    return True
