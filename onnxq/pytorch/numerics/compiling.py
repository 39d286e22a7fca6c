"""Functions and values that torch.compile is to leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def never_compiled(function: Function, reason: str | None = None) -> Function:
    """torch.compiler.disable, which is untyped."""
    disabled: Function = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]  # torch's
    return disabled


@torch.library.custom_op("onnxq::held", mutates_args=())
def _held(x: Tensor) -> Tensor:
    """A copy."""
    return x.clone()


@_held.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def held(x: Tensor) -> Tensor:
    """The values of x, without gradient, that compiled code never computes a second time.

    Args:
        x: computed of a buffer that changes in place behind it.
    """
    if not torch.compiler.is_compiling():
        return x.detach()
    result: Tensor = torch.ops.onnxq.held(x.detach())
    return result
