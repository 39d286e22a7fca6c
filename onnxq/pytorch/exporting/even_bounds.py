"""Bounds of a clamp as numbers of one type: torch's exporter takes no int beside a float.

Its pass that promotes types makes a tensor of the int, and `aten.clamp` has no overload for a
tensor beside a number. torch itself promotes both to float, whatever the tensor that is clamped is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable

_CLAMPS: frozenset[object] = frozenset(
    {torch.clamp, torch.clamp_, torch.clip, torch.clip_}
    | {Tensor.clamp, Tensor.clamp_, Tensor.clip, Tensor.clip_}
)
_BOUNDS = ("min", "max")


class EvenBounds(TorchFunctionMode):
    """A context in which clamp(x, 0, 1.0) is clamp(x, 0.0, 1.0)."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs the function, a clamp with bounds of one type."""
        named = kwargs or {}
        if func not in _CLAMPS:
            return func(*args, **named)
        given = dict(zip(_BOUNDS, args[1:], strict=False)) | named
        bounds = {name: given[name] for name in _BOUNDS if name in given}
        if {type(bound) for bound in bounds.values()} != {int, float}:
            return func(*args, **named)
        return func(*args[:1], **named | {name: float(bound) for name, bound in bounds.items()})
