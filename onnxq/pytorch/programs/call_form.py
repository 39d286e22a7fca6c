"""How a training graph is called, and what it returns: as the module that it was made of.

    forward(x, hidden=(h, c), scale=2.0) -> Output(y=..., hidden=(..., ...))

Each parameter is a placeholder of the graph; tensors nested in an argument are taken out of it by
nodes. What the graph has fixed, numbers and None, is compared when the graph is called.
"""

import dataclasses
import inspect
import operator
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.export import ExportedProgram

from onnxq.errors import ModelError, ShapeError
from onnxq.pytorch.arguments.bound_inputs import BoundInputs, Slot
from onnxq.pytorch.arguments.nesting import attribute_access, children, leaves, replaced


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The head of a graph.

    Attributes:
        tensors: name of an input -> the node that gives it.
        constants: parameter -> the value that the graph was made for.
        checked: parameter -> its node, of the constants.
    """

    tensors: Mapping[str, fx.Node]
    constants: Mapping[str, object]
    checked: Mapping[str, fx.Node]


def entry(graph: fx.Graph, model: nn.Module, bound: BoundInputs) -> Entry:
    """Makes the placeholders of a graph, and the nodes that take tensors out of arguments."""
    given = bound.call.arguments
    parameters = dict(inspect.signature(model.forward).parameters)
    nodes: dict[str, fx.Node] = {}
    values: dict[str, object] = {}
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        if star and name not in given:
            continue
        default: tuple[Any, ...] = ()
        if parameter.default is not parameter.empty:
            if name not in given and not _is_literal(parameter.default):
                continue
            default = (parameter.default if _is_literal(parameter.default) else None,)
        nodes[name] = graph.create_node("placeholder", f"{star}{name}", default, {}, name)
        values[name] = given.get(name, parameter.default)
    for name in given:  # of **kwargs, each by its own name
        if name not in nodes:
            nodes[name] = graph.create_node("placeholder", name, (None,), {}, name)
            values[name] = given[name]
    tensors: dict[str, fx.Node] = {}
    for name, value in values.items():
        tensors |= _taken_out(graph, nodes[name], value)
    constants = {name: value for name, value in values.items() if not _holds_tensor(value)}
    return Entry(tensors, constants, {name: nodes[name] for name in constants})


def _is_literal(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _holds_tensor(template: object) -> bool:
    return any(isinstance(leaf, Slot) for _, leaf in leaves(template))


def _taken_out(graph: fx.Graph, node: fx.Node, template: object) -> dict[str, fx.Node]:
    """The nodes of the tensors in an argument; one for each tensor, by its name."""
    if isinstance(template, Slot):
        return {template.name: node}
    found: dict[str, fx.Node] = {}
    for position, (key, part) in enumerate(children(template) or ()):
        if not _holds_tensor(part):
            continue
        by_attribute = attribute_access(template) and isinstance(key, str)
        take: Any = getattr if by_attribute else operator.getitem
        index = key if by_attribute or isinstance(template, MutableMapping) else position
        name = part.name if isinstance(part, Slot) else None
        found |= _taken_out(
            graph, graph.create_node("call_function", take, (node, index), {}, name), part
        )
    return found


class ConstantGuard(nn.Module):
    """Raises a ModelError for arguments that differ from those that the graph was made for."""

    _is_impure = True  # torch.fx: not to be left out, though nothing reads it

    def __init__(self, constants: Mapping[str, object]) -> None:
        super().__init__()
        self.constants = dict(constants)

    def forward(self, *values: object) -> None:
        """Compares the values, in the order of the constants."""
        for (name, wanted), got in zip(self.constants.items(), values, strict=True):
            if not _agrees(got, wanted):
                shown = "a tensor" if isinstance(got, torch.Tensor) else repr(got)
                raise ModelError(
                    f"argument '{name}' is {shown}; the model was prepared for {wanted!r}, which "
                    f"its graph has fixed. Prepare it with example inputs that have '{name}'."
                )


def _agrees(got: object, wanted: object) -> bool:
    """Whether an argument is what the graph has fixed; None is what False is: not asked for."""
    if isinstance(got, torch.Tensor) or isinstance(wanted, torch.Tensor):
        return got is wanted
    if isinstance(got, np.ndarray) or isinstance(wanted, np.ndarray):
        return np.array_equal(np.asarray(got), np.asarray(wanted))
    return bool(got == wanted) or (not got and not wanted and None in (got, wanted))


class OutputForm(nn.Module):
    """Puts tensors where forward had them in its result: dataclasses, named tuples, mappings."""

    def __init__(self, outputs: object) -> None:
        super().__init__()
        paths = iter(range(sum(1 for _ in leaves(outputs))))

        def slot(path: tuple[str | int, ...], leaf: object) -> object:
            return Slot(str(next(paths)), path) if isinstance(leaf, torch.Tensor) else leaf

        self.template = replaced(outputs, slot)

    def forward(self, *tensors: torch.Tensor) -> object:
        """The result with these tensors, in order."""
        left = iter(tensors)
        return replaced(self.template, lambda _, x: next(left) if isinstance(x, Slot) else x)


def is_plain(outputs: object) -> bool:
    """Whether a result is made of tensors and literals in tuples, lists and dicts alone."""
    if type(outputs) in (tuple, list, dict):
        return all(is_plain(part) for _, part in children(outputs) or ())
    return isinstance(outputs, torch.Tensor) or _is_literal(outputs)


# --- Shapes that a training graph takes, checked where it is called.
#
# A graph holds for the sizes that torch.export left open: another one would compute something else,
# or fail far behind its cause.


@dataclass(frozen=True, slots=True)
class InputShape:
    """Sizes of one input: a number, the name of sizes that are of one length, or None for any."""

    name: str
    sizes: tuple[int | str | None, ...]


class ShapeGuard(nn.Module):
    """Raises a ShapeError for inputs that the graph does not hold for."""

    _is_impure = True  # torch.fx: not to be left out, though nothing reads it

    def __init__(
        self, shapes: tuple[InputShape, ...], ranges: Mapping[str, tuple[int, int]]
    ) -> None:
        super().__init__()
        self.shapes, self.ranges = shapes, dict(ranges)

    def forward(self, *tensors: torch.Tensor | None) -> None:
        """Checks the shapes, but not while the graph itself is exported or compiled."""
        if torch.compiler.is_compiling():
            return
        known: dict[str, tuple[int, str]] = {}
        for shape, x in zip(self.shapes, tensors, strict=True):
            if not isinstance(x, torch.Tensor):
                raise ShapeError(f"input '{shape.name}' is {type(x).__name__}; wanted a tensor.")
            if x.ndim != len(shape.sizes):
                raise ShapeError(_wrong(shape, x, f"wanted {len(shape.sizes)} axes"))
            for axis, wanted in enumerate(shape.sizes):
                why = self._wrong_size(wanted, x.shape[axis], known)
                if why:
                    raise ShapeError(_wrong(shape, x, f"axis {axis} {why}"))
                if isinstance(wanted, str):
                    known[wanted] = x.shape[axis], f"axis {axis} of '{shape.name}'"

    def _wrong_size(
        self, wanted: int | str | None, size: int, known: dict[str, tuple[int, str]]
    ) -> str:
        if isinstance(wanted, int) and size != wanted:
            return f"has to be {wanted} long"
        if isinstance(wanted, str):
            least, largest = self.ranges.get(wanted, (0, size))
            if not least <= size <= largest:
                return f"has to be {least} to {largest} long"
            if wanted in known and known[wanted][0] != size:
                return f"has to be as long as {known[wanted][1]}, {known[wanted][0]}"
        return ""


def _wrong(shape: InputShape, x: torch.Tensor, why: str) -> str:
    return (
        f"input '{shape.name}' has shape {list(x.shape)}: {why}, as in the example inputs that the "
        "model was prepared with. Prepare it with examples of this shape, or pad the input."
    )


def guard_of(program: ExportedProgram) -> ShapeGuard:
    """The guard of a program's inputs; a size that was found from 2 on may be 1 too."""
    names = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    shapes = []
    for name in program.graph_signature.user_inputs:
        value = names[str(name)].meta["val"]
        shapes.append(InputShape(str(name), tuple(_size(n) for n in value.shape)))
    ranges = {}
    for symbol, found in program.range_constraints.items():
        least, largest = int(found.lower), _UNBOUNDED
        if found.upper.is_Integer:
            largest = int(found.upper)
        # torch.export looks at sizes from 2 on alone; one row is a batch
        ranges[str(symbol)] = (1 if least == _TRACED_FROM else least, largest)
    return ShapeGuard(tuple(shapes), ranges)


_TRACED_FROM = 2
_UNBOUNDED = 2**62


def _size(size: int | torch.SymInt) -> int | str | None:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    return str(expression) if expression.is_Symbol else None
