"""Torch operators of onnxq's own: `torch.ops.onnxq.*`, which torch.export keeps whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def torch_operator(name: str, shapes: Callable[..., Any]) -> Callable[[Function], Function]:
    """A decorator that makes a torch operator of a function, typed as the function.

    Args:
        name: of the operator in torch.ops.onnxq.
        shapes: gives results without values for the function's arguments, where torch traces.
    """

    def made(function: Function) -> Function:
        operator = torch.library.custom_op(f"onnxq::{name}", function, mutates_args=())
        operator.register_fake(shapes)
        return operator  # type: ignore[return-value]  # it is called as the function

    return made
