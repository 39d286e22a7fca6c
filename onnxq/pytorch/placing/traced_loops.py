"""Lets torch.fx trace loops over what a tensor is split into: list(x.chunk(2, 1)), *x.shape.

The graph so far is run on the example inputs, which says how many parts there are. The loop is
traced for that many, and the graph holds a node that refuses another number:

    known = parts(x.chunk(2, 1), 2);  y = [known[0], known[1]]
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from onnxq.errors import ModelError, UnsupportedError, kind_of
from onnxq.pytorch.arguments.forward import FORWARD_RAISES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs


NO_LENGTH = "len() of a traced value is not known"


@contextlib.contextmanager
def hintless() -> Iterator[None]:
    """While it lasts, list(x) of a Proxy goes on to iterate.

    list asks for a length first, and does without one where that is a TypeError; that of torch is
    a RuntimeError.
    """
    original = fx.Proxy.__len__

    def length(self: fx.Proxy) -> int:
        raise TypeError(f"{NO_LENGTH} ('{self.node.name}').")

    fx.Proxy.__len__ = length  # type: ignore[method-assign]
    try:
        yield
    finally:
        fx.Proxy.__len__ = original  # type: ignore[method-assign]


def parts(value: Sequence[Any] | torch.Tensor, count: int) -> Sequence[Any]:
    """The parts that a loop over the value takes; a tensor's are its rows.

    Raises:
        ModelError: they are not `count`, for which the loop was traced.
    """
    got = value.unbind(0) if isinstance(value, torch.Tensor) else value
    if len(got) != count:
        raise ModelError(
            f"a loop in forward takes {len(got)} parts of {kind_of(value)}; it was traced "
            f"for the {count} of the example inputs. Give inputs of those sizes along the axis "
            "that is split, or prepare the module with examples of these."
        )
    return got


class ExampleRun:
    """Values of the nodes of a growing graph for the example inputs.

    Args:
        root: the traced module.
        graph: its nodes so far.
        inputs: example inputs; left as they are.
    """

    def __init__(self, root: torch.nn.Module, graph: fx.Graph, inputs: BoundInputs) -> None:
        self._interpreter = fx.Interpreter(root, garbage_collect_values=False, graph=graph)
        # copies: a node may work in place
        self._arguments = inputs.holding(
            {name: x.clone() for name, x in inputs.tensors.items()}
        ).arguments

    def value(self, node: fx.Node) -> object:
        """Value of a node of the graph; each node runs once.

        Raises:
            ModelError: the module fails on the inputs.
        """
        known = self._interpreter.env
        for one in self._interpreter.graph.nodes:
            if one in known:
                continue
            try:
                with torch.no_grad():
                    given = one.op == "placeholder"
                    known[one] = (
                        self._arguments[one.target] if given else self._interpreter.run_node(one)
                    )
            except FORWARD_RAISES as error:
                raise ModelError(
                    f"{type(self._interpreter.module).__name__} fails on example inputs at "
                    f"'{one.name}': {' '.join(str(error).split())[:300]}. Give inputs that forward "
                    "takes."
                ) from error
        return known[node]

    def count(self, node: fx.Node) -> int:
        """How many parts a loop over a node's value takes.

        Raises:
            UnsupportedError: it is no tuple, list or tensor.
            ModelError: the module fails on the inputs.
        """
        value = self.value(node)
        if isinstance(value, tuple | list) or (isinstance(value, torch.Tensor) and value.ndim):
            return len(value)
        raise UnsupportedError(
            f"a loop in forward, or a * in a call, takes parts of '{node.name}', a "
            f"{type(value).__name__}; wanted a tuple, a list or a tensor with axes. Take what is "
            "needed by index or key."
        )
