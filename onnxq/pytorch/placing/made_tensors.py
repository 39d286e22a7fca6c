"""Lets torch.fx trace tensors that are made of sizes: torch.ones(t, t), torch.full((n, 1), x).

torch takes a torch.fx.Proxy for a tensor among its arguments, but not for a number in these calls.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAKERS = ("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "zeros")


@contextlib.contextmanager
def traced_makers() -> Iterator[None]:
    """While it lasts, calls of torch's MAKERS that read a Proxy become nodes of its graph."""
    originals = {name: getattr(torch, name) for name in MAKERS}
    try:
        for name, make in originals.items():
            setattr(torch, name, _traced(make))
        yield
    finally:
        for name, make in originals.items():
            setattr(torch, name, make)


def _traced(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        proxy = next((leaf for leaf in leaves if isinstance(leaf, fx.Proxy)), None)
        if proxy is None:
            return make(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", make, args, kwargs)

    return made
