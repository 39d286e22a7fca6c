"""Results of a module's forward on bound inputs, and its errors on inputs that it does not take."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from onnxq.errors import ModelError, UnsupportedError, kind_of
from onnxq.pytorch.arguments.bound_inputs import BoundInputs
from onnxq.pytorch.arguments.nesting import leaves, shown

FORWARD_RAISES = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of a forward on inputs that it does not take."""


def flatten(outputs: object) -> list[torch.Tensor]:
    """The tensors of a module's result, however nested, in order; None is left out."""
    found = []
    for path, leaf in leaves(outputs):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
        elif leaf is not None:
            where = f", as {shown(('result', *path))}" if path else ""
            raise UnsupportedError(
                f"forward returned {kind_of(leaf)}{where}; wanted tensors, None, or "
                "sequences, mappings or dataclasses of them. Wrap the module in one that returns "
                "tensors."
            )
    return found


def compute(module: nn.Module, inputs: BoundInputs) -> object:
    """The module's result for the inputs, without gradients."""
    # fx's own __call__ prints what forward raises, which the search for a batch axis expects
    call = nn.Module.__call__ if isinstance(module, fx.GraphModule) else type(module).__call__
    with torch.no_grad():
        return call(module, *inputs.args, **inputs.kwargs)


def copied(module: Any) -> Any:
    """A copy of a module, without the gradients of weights that a hook computes (weight_norm)."""
    held = (x for part in module.modules() for x in vars(part).values())
    left = [x for x in held if isinstance(x, torch.Tensor) and not x.is_leaf]
    return copy.deepcopy(module, {id(x): x.detach() for x in left})


def first_run(module: nn.Module, inputs: BoundInputs) -> object:
    """The module's result for the example inputs; an exception of forward names them."""
    try:
        return compute(module, inputs)
    except FORWARD_RAISES as error:
        raise ModelError(
            f"{type(module).__name__} fails on the example inputs {described(inputs, error)}. "
            "Give inputs that forward takes; on the command line --input NAME=DTYPE[SHAPE] or "
            "--samples FILE."
        ) from error


def described(inputs: BoundInputs, error: Exception) -> str:
    """Names, dtypes and shapes of the inputs, and what forward says of them."""
    return f"{inputs}: {' '.join(str(error).split())[:400] or type(error).__name__}"


@contextlib.contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Eval mode inside; each submodule's own mode outside."""
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        yield
    finally:
        for part, training in modes.items():
            part.training = training


def alike(one: torch.Tensor, other: torch.Tensor, share: float) -> bool:
    """Whether tensors are equal but for a share of the largest number; integers exactly."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    one, other = one.detach(), other.detach()
    finite = other[torch.isfinite(other)]
    bound = share * float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(one, other, rtol=0.0, atol=bound, equal_nan=True)
