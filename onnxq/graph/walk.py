"""Walks over nodes and values of canonical graphs, in which every node and value has a name."""

from collections.abc import Container, Iterator

import onnx_ir as ir

from onnxq.operator import AttributeValue

IF, LOOP, SCAN = "If", "Loop", "Scan"
"""Operators that hold graphs."""
_BODIES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def value_name(value: ir.Value) -> str:
    """The value's name; canonical graphs name every value."""
    assert value.name
    return value.name


def is_read(value: ir.Value) -> bool:
    """Whether a node or the graph's caller gets the value."""
    return bool(value.uses()) or value.is_graph_output()


def node_name(node: ir.Node) -> str:
    """The node's name; canonical graphs name every node."""
    assert node.name
    return node.name


def stem_among(name: str, names: Container[str]) -> str:
    """The longest of the names that a node's name begins with, or none: the empty string."""
    while name and name not in names:
        name = name[: max(name.rfind("_"), name.rfind("/"), 0)]
    return name


def op_label(node: ir.Node) -> str:
    """Conv, or com.microsoft.Gelu outside of ai.onnx."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def attribute_values(node: ir.Node) -> dict[str, AttributeValue]:
    """Attributes as kernels take them: name -> value, without references to a function's."""
    return {name: a.value for name, a in node.attributes.items() if not a.is_ref()}


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The graphs that a node holds in its attributes."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        value = attribute.value
        if attribute.type in _BODIES and value is not None:  # None: a reference, or nothing
            found += [value] if isinstance(value, ir.Graph) else list(value)
    return found


def walk(graph: ir.Graph, loop: str | None = None) -> Iterator[tuple[ir.Node, str | None]]:
    """Nodes in the order in which they run, those of bodies before the node that holds them.

    Yields:
        (node, name of the innermost Loop or Scan around it or None).
    """
    for node in graph:
        inner = loop if node.op_type == IF else f"{node.op_type} '{node.name}'"
        for body in bodies(node):
            yield from walk(body, inner)
        yield node, loop


def tensor_names(model: ir.Model) -> list[str]:
    """Names that a qconfig may use for tensors: inputs, initializers, results, in bodies too."""
    names = [value_name(v) for v in model.graph.inputs]
    for graph in model.graphs():
        names += graph.initializers
    names += [v.name for node, _ in walk(model.graph) for v in node.outputs if v.name]
    return list(dict.fromkeys(names))
