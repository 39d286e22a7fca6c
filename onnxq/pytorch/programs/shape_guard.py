"""Shapes that a training graph takes, checked where it is called.

A graph holds for the sizes that torch.export left open. Another size of a fixed axis would compute
something else, or fail far behind its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from onnxq.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class InputShape:
    """Sizes of one input.

    Attributes:
        name: of the input.
        sizes: a number where an axis is fixed; else the name of its size, alike for axes that have
            to be of one length; None: anything.
    """

    name: str
    sizes: tuple[int | str | None, ...]


class ShapeGuard(nn.Module):
    """Raises a ShapeError for inputs that the graph does not hold for; gives nothing.

    Args:
        shapes: of the tensors, in order.
        ranges: name of a size -> (least, largest).
    """

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
