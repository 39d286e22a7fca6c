"""NaN among the example inputs' results: named, for the model would pass it on in silence.

QuantizeLinear turns NaN into some integer (ONNX leaves open which), so that a quantized model gives
numbers where its module, asked in float, has none.
"""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

import torch
from torch.utils._pytree import tree_leaves

from onnxq.errors import ModelError
from onnxq.pytorch.arguments.forward import compute, first_run, flatten
from onnxq.pytorch.nn.quantized.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs


def run_in_numbers(module: nn.Module, inputs: BoundInputs) -> object:
    """The module's result for the example inputs; a warning says where NaN in it comes from.

    Args:
        module: in eval mode.
        inputs: one batch.
    """
    with contextlib.ExitStack() as stack:
        for name, part in module.named_modules():
            if isinstance(part, Stored):
                hook = part.register_forward_pre_hook(_Refusal(name, inputs))
                stack.callback(hook.remove)
        outputs = first_run(module, inputs)
    nan = [index for index, x in enumerate(flatten(outputs)) if _holds_nan(x)]
    if nan:
        warnings.warn(
            f"{type(module).__name__}: output {nan[0]} holds NaN on the example inputs"
            f"{_origin(module, inputs)}. It is exported as it is; give other example inputs to "
            "have these numbers compared.",
            UserWarning,
            stacklevel=3,
        )
    return outputs


class _Refusal:
    """Refuses NaN ahead of a layer that rounds it to integers."""

    def __init__(self, name: str, inputs: BoundInputs) -> None:
        self.name = name
        self.inputs = inputs

    def __call__(self, part: nn.Module, args: tuple[object, ...]) -> None:
        if not any(isinstance(x, torch.Tensor) and _holds_nan(x) for x in args):
            return
        raise ModelError(
            f"'{self.name}' ({type(part).__name__}) is given NaN with the example inputs"
            f"{_of_inputs(self.inputs)}: integers cannot say that, and the exported model would "
            "give "
            "some number in its place. Give example inputs without, or mend the layer ahead of it."
        )


def _of_inputs(inputs: BoundInputs) -> str:
    """Which inputs hold NaN themselves."""
    found = [f"'{name}'" for name, x in inputs.tensors.items() if _holds_nan(x)]
    return f", of which {', '.join(found)} hold NaN" if found else ""


def _origin(module: nn.Module, inputs: BoundInputs) -> str:
    """A phrase with the parameter or layer that NaN comes from, or the inputs."""
    own = [name for name, x in module.named_parameters() if _holds_nan(x)]
    if own:
        return f": parameter '{own[0]}' does"
    if of_inputs := _of_inputs(inputs):
        return of_inputs
    first: list[str] = []
    with contextlib.ExitStack() as stack:
        for name, part in module.named_modules():
            if name:
                hook = part.register_forward_hook(_noting(name, first))
                stack.callback(hook.remove)
        compute(module, inputs)
    return f": the first layer whose result does is '{first[0]}'" if first else ""


def _noting(name: str, first: list[str]) -> Callable[..., None]:
    def note(part: nn.Module, args: object, result: object) -> None:  # noqa: ARG001  # a hook's
        leaves = tree_leaves(result)
        if any(isinstance(x, torch.Tensor) and _holds_nan(x) for x in leaves):
            first.append(name)

    return note


def _holds_nan(x: torch.Tensor) -> bool:
    return x.is_floating_point() and bool(x.detach().isnan().any())
