"""Functions that torch.compile is to leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def never_compiled(function: Function, reason: str | None = None) -> Function:
    """torch.compiler.disable, which is untyped.

    Args:
        function: torch.compile leaves its graph there, or raises where fullgraph forbids it.
        reason: that torch gives then.
    """
    disabled: Function = torch.compiler.disable(function, reason=reason)  # type: ignore[no-untyped-call]
    return disabled
