"""A torch.autograd.Function as a module of a graph, with the backward that its author wrote.

y = Function.apply(x, 0.5)    y = AppliedFunction(Function, (Place(0), 0.5))(x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.autograd import Function


@dataclass(frozen=True, slots=True)
class Place:
    """Stands for a tensor among the arguments of a call.

    Attributes:
        position: among the call's tensors.
    """

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
