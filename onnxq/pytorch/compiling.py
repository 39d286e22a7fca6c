"""What torch.compile is to leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def never_compiled(function: Function) -> Function:
    """torch.compiler.disable, which is untyped."""
    disabled: Function = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled
