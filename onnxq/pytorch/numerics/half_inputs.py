"""Layers that compute in float32, called in half precision.

    y = forward(x.float()).to(x.dtype)

A model in float16 or bfloat16, or one under autocast, hands such tensors to its quantized layers.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch.utils import _pytree as pytree

from onnxq.pytorch.arguments.bound_inputs import HALVES

P = ParamSpec("P")
R = TypeVar("R")


def takes_halves(forward: Callable[P, R]) -> Callable[P, R]:
    """The forward, which also takes tensors in half precision and gives results in their type."""

    @functools.wraps(forward)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        leaves = pytree.tree_leaves((args, kwargs))
        given = [x.dtype for x in leaves if isinstance(x, torch.Tensor) and x.dtype in HALVES]
        if not given:
            return forward(*args, **kwargs)
        args, kwargs = pytree.tree_map_only(
            torch.Tensor, lambda x: x.float() if x.dtype in HALVES else x, (args, kwargs)
        )
        to_given = functools.partial(torch.Tensor.to, dtype=given[0])
        result: R = pytree.tree_map_only(torch.Tensor, to_given, forward(*args, **kwargs))
        return result

    return wrapped
