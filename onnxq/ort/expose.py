"""Makes inner tensors outputs of a copy of the model, so that a runtime hands them out.

A tensor of the main graph simply becomes a graph output. A tensor inside a branch of an If becomes
one more output of that If; the other branch gives an empty tensor (shape [0]) in its place, so that
the reader sees which branch ran. Nested Ifs repeat this outwards. Bodies of Loop and Scan are not
opened: their tensors have one value per iteration.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.errors import ModelError, UnsupportedError, nearest
from onnxq.graph.edit import NamePool
from onnxq.graph.types import infer_types
from onnxq.graph.walk import IF
from onnxq.ort.node_kinds import value_types

BRANCHES = {"then_branch": "else_branch", "else_branch": "then_branch"}
"""If's two branches, each with the other."""


@dataclass(frozen=True, slots=True)
class Exposed:
    """A model with more outputs.

    Attributes:
        model: the copy; weights are shared with the original.
        outputs: asked tensor -> name of the graph output that carries it. The names differ only for
            tensors inside branches.
    """

    model: ir.Model
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is: the (If node, branch name) pairs on the way in, outermost first."""

    value: ir.Value
    way: tuple[tuple[ir.Node, str], ...]


def expose(model: ir.Model, tensors: Sequence[str]) -> Exposed:
    """A copy of `model` in which every tensor of `tensors` is a graph output.

    Args:
        model: names are unique over the whole model (canonical); left untouched.
        tensors: names of node outputs or graph inputs, in the main graph or in branches of If. An
            initializer is no tensor of this kind.
    Returns:
        The outputs of the original come first, in their order; the others follow as asked.
    """
    copy = model.clone()
    inside = (place.value for place in _walk(copy.graph, ()) if place.way)
    if any(x.type is None and x.name in tensors for x in inside):  # which files need not say there
        type_bodies(copy)
    places = {place.value.name or "": place for place in _walk(copy.graph, ())}
    taken = NamePool([*places, *copy.graph.initializers])
    outputs: dict[str, str] = {}
    for name in tensors:
        if name not in places:
            raise _unknown(name, copy, places)
        outputs[name] = _expose_one(copy.graph, places[name], taken)
    return Exposed(copy, outputs)


def observable(model: ir.Model) -> list[str]:
    """Names of every node output that `expose` takes, in graph order."""
    return [p.value.name for p in _walk(model.graph, ()) if p.value.name and p.value.producer()]


def _walk(graph: ir.Graph, way: tuple[tuple[ir.Node, str], ...]) -> Iterator[_Place]:
    for value in graph.inputs:
        yield _Place(value, way)
    for node in graph:
        for value in node.outputs:
            if value.name:
                yield _Place(value, way)
        if node.op_type != IF or node.domain:
            continue
        for branch in BRANCHES:
            yield from _walk(node.attributes[branch].as_graph(), (*way, (node, branch)))


def _unknown(
    name: str, model: ir.Model, places: Mapping[str, _Place]
) -> ModelError | UnsupportedError:
    inside = {v.name for node in model.graph.all_nodes() for v in node.outputs}
    if name in inside:
        return UnsupportedError(
            f"tensor '{name}' is inside the body of a Loop or Scan, with one value per iteration; "
            "such bodies stay in float. Take it out of the tensors to observe."
        )
    if name in model.graph.initializers:
        return ModelError(
            f"tensor '{name}' is a constant of the model; only activations are observed."
        )
    return ModelError(f"tensor '{name}' is not in the model.{nearest(name, places)}")


def _expose_one(graph: ir.Graph, place: _Place, taken: NamePool) -> str:
    value = place.value
    for node, branch in reversed(place.way):
        value = lift(value, node, branch, taken)
    if not value.is_graph_output():
        graph.outputs.append(value)
    return str(value.name)


def lift(value: ir.Value, node: ir.Node, branch: str, taken: NamePool) -> ir.Value:
    """One more output of the If `node` that carries `value` of its branch, empty from the other."""
    kind = value.type
    assert kind is not None, "bodies are typed before they are opened"
    own = node.attributes[branch].as_graph()
    other = node.attributes[BRANCHES[branch]].as_graph()
    own.outputs.append(_own_output(value, own, taken))
    blank = _blank(kind, taken.take(f"{value.name}_none"))
    shape = ir.Shape([0]) if isinstance(kind, ir.TensorType) else None
    _describe(blank.outputs[0], taken.take(f"{value.name}_empty"), kind, shape)
    other.append(blank)
    other.outputs.append(blank.outputs[0])
    node.resize_outputs(len(node.outputs) + 1)
    return _describe(node.outputs[-1], taken.take(f"{value.name}_exposed"), kind, None)


def _blank(kind: ir.TypeProtocol, name: str) -> ir.Node:
    """Makes an empty tensor, or an empty sequence."""
    if isinstance(kind, ir.SequenceType):
        return ir.node("SequenceEmpty", [], {"dtype": kind.dtype.value}, name=name)
    empty = ir.tensor(np.zeros(0, kind.dtype.numpy()), dtype=kind.dtype)
    return ir.node("Constant", [], {"value": empty}, name=name)


def _own_output(value: ir.Value, graph: ir.Graph, taken: NamePool) -> ir.Value:
    """`value`, or a copy of it where the branch has it as an output (or input) already."""
    if not value.is_graph_output():
        return value
    copy = ir.node("Identity", [value], name=taken.take(f"{value.name}_again"))
    graph.append(copy)
    assert value.type is not None
    return _describe(copy.outputs[0], taken.take(f"{value.name}_copy"), value.type, value.shape)


def _describe(
    value: ir.Value, name: str, kind: ir.TypeProtocol, shape: ir.Shape | None
) -> ir.Value:
    value.name, value.type, value.shape = name, kind, shape
    return value


# --- Types of values in bodies, which neither ONNX Runtime nor other tools write into a file


def type_bodies(model: ir.Model) -> None:
    """Fills in types of values inside of bodies, in place.

    By onnx's inference; what it does not know (operators of com.microsoft, and all behind them) by
    the facts of ONNX Runtime's operators.
    """
    infer_types(model)
    for value, dtype in value_types(model).items():
        if value.type is None and value.graph is not model.graph:
            value.type = ir.TensorType(dtype)
