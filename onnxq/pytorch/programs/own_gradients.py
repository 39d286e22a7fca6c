"""Calls of torch.autograd.Function in a program, whose operators have another backward than they.

    y = Sign.apply(x)    program: y = aten.sign(x), whose gradient is 0

torch.export looks into apply. While `OwnGradients` lasts, arguments and results of each call go
through operators that mark them; `remove_marks` removes them and tells which nodes lie between.
Functions of torch itself have the gradient of their operators; a checkpoint is what it runs. A
function that is called with a module, a function or a size that is open stays traced: the graph has
no such value.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import torch
from torch import Tensor, fx, nn
from torch.autograd import Function
from torch.autograd.function import _SingleLevelFunction
from torch.export import ExportedProgram
from torch.utils.checkpoint import CheckpointFunction

from onnxq.errors import UnsupportedError
from onnxq.pytorch.numerics.torch_operator import torch_operator

# --- A torch.autograd.Function as a module of a graph, with the backward that its author wrote.
#
# y = Function.apply(x, 0.5)    y = AppliedFunction(Function, (Place(0), 0.5))(x)


@dataclass(frozen=True, slots=True)
class Place:
    """Stands for a tensor among the arguments of a call."""

    position: int


class AppliedFunction(nn.Module):
    """Calls Function.apply."""

    def __init__(self, function: type[Function], arguments: tuple[object, ...]) -> None:
        super().__init__()
        self.function = function
        self.arguments = arguments

    def forward(self, *tensors: Tensor) -> Any:
        """Result of apply for these tensors."""
        given = [tensors[x.position] if isinstance(x, Place) else x for x in self.arguments]
        apply: Any = self.function.apply
        return apply(*given)

    def extra_repr(self) -> str:
        """The function, by its name."""
        return self.function.__name__


aten = torch.ops.aten

_LITERALS = (bool, int, float, str, torch.dtype, torch.device, type(None))
_OWN = ("torch.", "onnxq.")


def _like(x: Tensor, *_: int) -> Tensor:
    return torch.empty_like(x)


@torch_operator("function_argument", _like)
def function_argument(x: Tensor, call: int, position: int) -> Tensor:  # noqa: ARG001  # marks
    """A copy of x: argument of a call, at a position among its tensors."""
    return x.clone()


@torch_operator("function_result", _like)
def function_result(x: Tensor, call: int, position: int) -> Tensor:  # noqa: ARG001  # marks
    """A copy of x: result of a call, at a position among its results."""
    return x.clone()


_ARGUMENT = torch.ops.onnxq.function_argument.default
_RESULT = torch.ops.onnxq.function_result.default


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """One call of Function.apply in a program.

    Attributes:
        function: that was applied.
        arguments: of apply; in place of each tensor there is a Place.
        is_single: whether apply returned one tensor, and no tuple.
        tensors: names of the nodes that give the tensors.
        results: name of a node that gives a result -> position of that result.
        inside: names of the nodes between, those of results included.
    """

    function: type[Function]
    arguments: tuple[object, ...]
    is_single: bool
    tensors: tuple[str, ...] = ()
    results: Mapping[str, int] = field(default_factory=dict)
    inside: frozenset[str] = frozenset()


class OwnGradients:
    """A context in which calls of functions are marked and noted."""

    def __init__(self) -> None:
        self.noted: dict[int, FunctionCall] = {}
        self._calls = 0
        self._is_inside = False

    def __enter__(self) -> Self:
        # Function.apply, which users may hold from before, calls the apply of this base
        base: Any = _SingleLevelFunction
        base.apply = classmethod(lambda kind, *args: self._applied(kind, args))
        return self

    def __exit__(self, *_: object) -> None:
        delattr(_SingleLevelFunction, "apply")

    def _applied(self, kind: type[Function], args: tuple[Any, ...]) -> Any:
        if kind is CheckpointFunction:  # under torch.no_grad, for a backward that computes it again
            run, _, *rest = args
            return run(*rest)
        own = super(_SingleLevelFunction, kind).apply  # type: ignore[misc]  # of torch's C++ base
        if self._is_inside or kind.__module__.startswith(_OWN) or not all(map(_is_kept, args)):
            return own(*args)
        self._is_inside = True
        try:
            return self._marked(kind, own, args)
        finally:
            self._is_inside = False

    def _marked(self, kind: type[Function], own: Any, args: tuple[Any, ...]) -> Any:
        call = self._calls = self._calls + 1
        tensors = [x for x in args if isinstance(x, Tensor)]
        marked = [function_argument(x, call, i) for i, x in enumerate(tensors)]
        given, places = iter(marked), map(Place, range(len(tensors)))
        made = own(*[next(given) if isinstance(x, Tensor) else x for x in args])
        results = made if isinstance(made, tuple) else (made,)
        if any(result is x for result in results for x in marked):
            raise UnsupportedError(
                f"{kind.__name__}, a torch.autograd.Function, writes into its argument, which a "
                "training graph cannot hold. Let its forward return a new tensor."
            )
        arguments = tuple(next(places) if isinstance(x, Tensor) else x for x in args)
        self.noted[call] = FunctionCall(kind, arguments, not isinstance(made, tuple))
        out = [
            function_result(x, call, i) if isinstance(x, Tensor) else x
            for i, x in enumerate(results)
        ]
        return tuple(out) if isinstance(made, tuple) else out[0]


def _is_kept(argument: object) -> bool:
    """Whether a graph can hold an argument of apply: a tensor or a literal."""
    if isinstance(argument, tuple | list):
        return all(isinstance(x, _LITERALS) for x in argument)
    return isinstance(argument, (Tensor, *_LITERALS))


def remove_marks(program: ExportedProgram, noted: OwnGradients) -> tuple[FunctionCall, ...]:
    """The calls of functions in a program, whose marks are taken away in place.

    A call of which more than its results is read (a tensor kept on the side) has no place of its
    own: it stays traced.
    """
    graph = program.graph
    numbers = {node.args[1] for node in graph.nodes if node.target is _RESULT}
    calls = [_Call(graph, int(number)) for number in sorted(numbers)]
    outputs = set(map(str, program.graph_signature.user_outputs))
    for call in calls:
        call.unmark_results(outputs)
    made = tuple(call.made(noted.noted[call.number]) for call in calls if call.is_closed)
    for call in calls:
        call.unmark_arguments()
    if calls:
        graph.lint()
        program.graph_module.recompile()
    return made


class _Call:
    """The marks of one call, and the nodes between them."""

    def __init__(self, graph: fx.Graph, number: int) -> None:
        self.number = number
        self._arguments: dict[int, fx.Node] = {}
        self._results: dict[int, fx.Node] = {}
        self._inside: dict[fx.Node, None] = {}
        for node in graph.nodes:
            is_mark = node.target in (_ARGUMENT, _RESULT) and node.args[1] == number
            if is_mark and node.target is _ARGUMENT:
                self._arguments[node.args[2]] = node
            elif is_mark:
                self._results[node.args[2]] = node
            elif any(
                x in self._inside or x in self._arguments.values() for x in node.all_input_nodes
            ):
                self._inside[node] = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing but results is read behind the call."""
        return not any(node.op == "output" for node in self._inside)

    def unmark_results(self, outputs: Collection[str]) -> None:
        """Takes the results' marks away; a result that is no node of its own becomes one."""
        taken: set[fx.Node] = set()
        for position, mark in self._results.items():
            result, name = _argument(mark), mark.name
            if result.op == "placeholder" or result.target is _ARGUMENT or result in taken:
                with mark.graph.inserting_before(mark):
                    result = mark.graph.call_function(aten.alias.default, (result,))
                result.meta = dict(mark.meta)
            mark.replace_all_uses_with(result)
            mark.graph.erase_node(mark)
            if name in outputs:
                result.name = name
            self._results[position] = result
            taken.add(result)

    def made(self, noted: FunctionCall) -> FunctionCall:
        """The call; the marks of its arguments are there, those of its results are gone."""
        marks = [self._arguments[i] for i in range(len(self._arguments))]
        results = {node.name: position for position, node in self._results.items()}
        return replace(
            noted,
            tensors=tuple(_argument(mark).name for mark in marks),
            results=results,
            inside=frozenset({node.name for node in self._inside} | results.keys()),
        )

    def unmark_arguments(self) -> None:
        """Takes the arguments' marks away."""
        for mark in self._arguments.values():
            mark.replace_all_uses_with(_argument(mark))
            mark.graph.erase_node(mark)


def _argument(mark: fx.Node) -> fx.Node:
    return cast("fx.Node", mark.args[0])
