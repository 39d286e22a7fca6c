"""Torch operators of onnxq's own: `torch.ops.onnxq.*`, which torch.export keeps whole."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def torch_operator(name: str, shapes: Callable[..., Any]) -> Callable[[Function], Function]:
    """A decorator that makes a torch operator of a function, typed as the function."""

    def made(function: Function) -> Function:
        operator = torch.library.custom_op(f"onnxq::{name}", function, mutates_args=())
        operator.register_fake(shapes)
        return operator  # type: ignore[return-value]  # it is called as the function

    return made
