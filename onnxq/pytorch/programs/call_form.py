"""How a training graph is called, and what it returns: as the module that it was made of.

    forward(x, hidden=(h, c), scale=2.0) -> Output(y=..., hidden=(..., ...))

Each parameter is a placeholder of the graph; tensors nested in an argument are taken out of it by
nodes. What the graph has fixed, numbers and None, is compared when the graph is called.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from onnxq.errors import ModelError
from onnxq.pytorch.arguments.bound_inputs import Slot
from onnxq.pytorch.arguments.nesting import (
    attribute_access,
    children,
    leaves,
    rebuilt,
    replaced,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs


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
    """Makes the placeholders of a graph, and the nodes that take tensors out of arguments.

    Args:
        graph: empty; changed in place.
        model: whose forward it stands for.
        bound: example inputs.
    """
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
    """Raises a ModelError for arguments that differ from those that the graph was made for.

    Args:
        constants: value by parameter.
    """

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
    """Puts tensors where forward had them in its result: dataclasses, named tuples, mappings.

    Args:
        outputs: what forward returned.
    """

    def __init__(self, outputs: object) -> None:
        super().__init__()
        paths = iter(range(sum(1 for _ in leaves(outputs))))

        def slot(path: tuple[str | int, ...], leaf: object) -> object:
            return Slot(str(next(paths)), path) if isinstance(leaf, torch.Tensor) else leaf

        self.template = replaced(outputs, slot)

    def forward(self, *tensors: torch.Tensor) -> object:
        """The result with these tensors, in order."""
        return _built(self.template, iter(tensors))


def _built(template: Any, tensors: Iterator[object]) -> Any:
    if isinstance(template, Slot):
        return next(tensors)
    kind = type(template)
    if kind in (tuple, list):
        return kind([_built(part, tensors) for part in template])
    if pytree.is_namedtuple_instance(template):
        return kind(*[_built(part, tensors) for part in template])
    if isinstance(template, MutableMapping) and not dataclasses.is_dataclass(template):
        return kind({key: _built(part, tensors) for key, part in template.items()})
    parts = children(template)
    if parts is None:
        return template
    made = [_built(part, tensors) for _, part in parts]
    if any(isinstance(key, int) for key, _ in parts):  # torch.export knows the class, and its parts
        return rebuilt(template, made)
    return kind(**{str(key): part for (key, _), part in zip(parts, made, strict=True)})


def result_of(outputs: object, nodes: Iterator[fx.Node]) -> Any:
    """Value that the graph's output node holds; None where an OutputForm has to make it.

    Args:
        outputs: what forward returned.
        nodes: of its tensors, in order.
    """
    if isinstance(outputs, torch.Tensor):
        return next(nodes)
    kind = type(outputs)
    if isinstance(outputs, tuple | list) and kind in (tuple, list):
        return kind([result_of(part, nodes) for part in outputs])
    if isinstance(outputs, dict) and kind is dict:
        return {key: result_of(part, nodes) for key, part in outputs.items()}
    return outputs


def is_plain(outputs: object) -> bool:
    """Whether a result is made of tensors and literals in tuples, lists and dicts alone."""
    kind = type(outputs)
    if kind in (tuple, list, dict):
        return all(is_plain(part) for _, part in children(outputs) or ())
    return isinstance(outputs, torch.Tensor) or _is_literal(outputs)
