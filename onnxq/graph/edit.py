"""Moves that several passes share: visit nodes, take one out, put one in, merge, name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.graph.origins import hand_on
from onnxq.graph.walk import is_read, value_name


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node, bodies of If, Loop and Scan included; nodes may be removed on the way."""
    return iter(ir.traversal.RecursiveGraphIterator(model.graph))


def all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Inputs, initializers and node outputs of one graph, without its subgraphs."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def use_short_domain(model: ir.Model) -> None:
    """Writes the opset of "ai.onnx" under "", its other name, which onnxq looks up."""
    version = model.opset_imports.pop("ai.onnx", None)
    if version is not None:
        model.opset_imports.setdefault("", version)


def bypass(node: ir.Node, slot: int = 0) -> bool:
    """Takes a node y = x out of its graph: who read y reads x. False where ONNX needs the node.

    A graph output keeps its name (x takes it); a body must produce its outputs itself, so that y
    stays where it is an output and x comes from outside, is an input, an initializer, or another
    output.
    """
    x, y, graph = node.inputs[slot], node.outputs[0], node.graph
    if x is None or graph is None:
        return False
    name = y.name
    is_output = y.is_graph_output()
    if is_output and (
        x.is_graph_input() or x.is_initializer() or x.is_graph_output() or x.graph is not graph
    ):
        return False
    if x.type is None:
        x.type = y.type
    if x.shape is None:
        x.shape = y.shape
    hand_on(y, x)
    y.replace_all_uses_with(x, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    if is_output:
        x.name = name
    return True


def graph_of(node: ir.Node) -> ir.Graph:
    """The graph that holds the node."""
    assert isinstance(node.graph, ir.Graph)
    return node.graph


def home_of(value: ir.Value) -> ir.Graph:
    """The graph that holds the value."""
    assert isinstance(value.graph, ir.Graph)
    return value.graph


def sole_user(value: ir.Value) -> ir.Node | None:
    """The node that alone reads a value, once; the graph may give the value, too."""
    return next(iter(value.uses())).node if len(value.uses()) == 1 else None


def sole_reader(value: ir.Value) -> ir.Node | None:
    """The node that alone reads a value, once; None also of what the graph gives."""
    return None if value.is_graph_output() else sole_user(value)


def graphs_of(model: ir.Model, nodes: Iterable[ir.Node]) -> list[ir.Graph]:
    """The main graph, then each other graph that holds one of the nodes."""
    return [model.graph, *dict.fromkeys(graph_of(n) for n in nodes if n.graph is not model.graph)]


def insert_behind(value: ir.Value, node: ir.Node, graph: ir.Graph) -> None:
    """Inserts the node right behind the value's producer, or first where that is elsewhere."""
    producer = value.producer()
    if producer is not None and producer.graph is graph:
        graph.insert_after(producer, node)
    elif len(graph):
        graph.insert_before(graph[0], node)
    else:
        graph.append(node)


def replace(node: ir.Node, made: ir.Node, names: FreeNames) -> None:
    """Puts a node of one output in the place of another, under its result's name."""
    old, new = node.outputs[0], made.outputs[0]
    new.type, new.shape = old.type, old.shape
    hand_on(old, new)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    stem = old.name
    old.name = names.value(f"{stem}_replaced")
    new.name = stem
    graph_of(node).insert_before(node, made)
    graph_of(node).remove(node, safe=True)


def new_initializer(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    """A new initializer of the graph."""
    value = ir.val(name, const_value=tensor)
    graph.register_initializer(value)
    return value


def new_constant(node: ir.Node, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    """A new initializer of the graph that holds the node; the name is free."""
    return new_initializer(graph_of(node), name, ir.Tensor(array, name=name))


def forget_unread(value: ir.Value) -> None:
    """Takes an initializer that nothing reads out of its graph."""
    if value.is_initializer() and not (is_read(value) or value.is_graph_input()):
        del home_of(value).initializers[value_name(value)]


def merge_equal(graph: ir.Graph, says: Callable[[ir.Node], Hashable | None]) -> bool:
    """Leaves one of the nodes of a graph that say the same; True where others went."""
    first: dict[Hashable, ir.Node] = {}
    modified = False
    for node in list(graph):
        said = says(node)
        kept = node if said is None else first.setdefault(said, node)
        if kept is node or any(value.is_graph_output() for value in node.outputs):
            continue
        for mine, other in zip(node.outputs, kept.outputs, strict=True):
            hand_on(mine, other)
            mine.replace_all_uses_with(other)
        graph.remove(node, safe=True)
        modified = True
    return modified


def divider_name(tensor: str) -> str:
    """Name of the node that a PTQ algorithm puts behind a tensor to divide its channels."""
    return f"{tensor}_divide"


class NamePool:
    """Names in use; gives out free ones, each once."""

    def __init__(self, used: Iterable[str | None]) -> None:
        self._used = set(used)
        self._next: dict[str, int] = {}  # so that the n-th of a kind is not searched from 1

    def __contains__(self, name: str) -> bool:
        return name in self._used

    def take(self, wanted: str) -> str:
        """`wanted` if it is free, else wanted_1, wanted_2 ..."""
        name = wanted
        while name in self._used:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}_{self._next[wanted]}"
        self._used.add(name)
        return name


class FreeNames:
    """Names that no value and no node of a model has; each name is given out once."""

    def __init__(self, model: ir.Model) -> None:
        self._values = NamePool(v.name for graph in model.graphs() for v in all_values(graph))
        self._nodes = NamePool(node.name for node in all_nodes(model))

    def value(self, wanted: str) -> str:
        """`wanted` if it is free, else wanted_1, wanted_2 ..."""
        return self._values.take(wanted)

    def node(self, wanted: str) -> str:
        """`wanted` if it is free, else wanted_1, wanted_2 ..."""
        return self._nodes.take(wanted)
