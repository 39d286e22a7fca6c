"""A module whose forward takes tensors one by one and returns a tuple of tensors.

    forward(x, hidden=(h, c)) -> {"y": y, "hidden": (h', c'), "loss": None}
    forward(x, hidden_0, hidden_1) -> (y, h', c')

That is the form of an ONNX model. It has the parameters, buffers and submodules of the module
itself, under the same names, so that weights and scopes of the exported model are called the same.
"""

import inspect
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from onnxq.pytorch.arguments.bound_inputs import BoundInputs, ForwardCall
from onnxq.pytorch.arguments.forward import flatten
from onnxq.pytorch.arguments.nesting import attribute_access, children, joined, leaves, unique

BEFORE = ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")
AFTER = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")
HOOKS = (*BEFORE, *AFTER)
"""Attributes of a module that hold its hooks on forward."""

# of a GraphModule: torch.export would run its graph, and not forward
_GRAPH = ("_graph", "_integer")


def is_flat(inputs: BoundInputs, outputs: object) -> bool:
    """Whether a module takes tensors only, and returns one or a tuple, list or dict of them."""
    if not inputs.is_flat:
        return False
    if isinstance(outputs, torch.Tensor):
        return True
    return type(outputs) in (tuple, list, dict) and all(
        isinstance(part, torch.Tensor) for _, part in children(outputs) or ()
    )


def flattened(module: nn.Module, inputs: BoundInputs) -> nn.Module:
    """The flat form of a module."""

    def forward(_: nn.Module, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = inputs.call.filled(dict(zip(inputs.tensors, tensors, strict=True)))
        # not __call__: tracing would take it for the call of a submodule
        hooked = any(getattr(module, name) for name in HOOKS)
        run: Any = getattr(module, "_call_impl" if hooked else "forward")
        return tuple(flatten(run(*args, **kwargs)))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter("self", kind)]
    named = [inspect.Parameter(joined((name,)), kind) for name in inputs.tensors]
    forward.__signature__ = inspect.Signature(own + named)  # type: ignore[attr-defined]  # PEP 362
    # of the module's type: nn.LSTM's parameters are set by its own rules
    base = nn.Module if isinstance(module, fx.GraphModule) else type(module)
    names = {"forward": forward, "__module__": type(module).__module__}
    made: nn.Module = nn.Module.__new__(type(type(module).__name__, (base,), names))
    made.__dict__.update(
        {name: value for name, value in vars(module).items() if name not in ("forward", *_GRAPH)}
    )
    made.__dict__.update({name: type(vars(module)[name])() for name in HOOKS})
    return made


def output_names(outputs: object, taken: Collection[str]) -> list[str] | None:
    """Names of the tensors that forward returned, by keys, fields and positions; None: it is one.

    (y, (h, c)) gives output_0, output_1_0, output_1_1; {"y": y, "hidden": (h, c)} gives y,
    hidden_0, hidden_1.
    """
    if isinstance(outputs, torch.Tensor):
        return None
    named = attribute_access(outputs) or isinstance(outputs, dict)
    paths = [path for path, leaf in leaves(outputs) if isinstance(leaf, torch.Tensor)]
    names = [joined(path if named else ("output", *path)) for path in paths]
    return unique([f"{name}_out" if name in taken else name for name in names], taken)


# --- Calls of Hugging Face's decoders without their cache of keys and values, which is no tensor.

_CACHE = "use_cache"


def without_cache(model: nn.Module, given: BoundInputs) -> BoundInputs:
    """The call without a cache of keys and values, unless the caller says something of it."""
    parameters = inspect.signature(model.forward).parameters
    if _CACHE not in parameters or given.call.arguments.get(_CACHE) is not None:
        return given
    args, kwargs = given.call.args, given.call.kwargs
    position = list(parameters).index(_CACHE)
    if position < len(args):
        args = (*args[:position], False, *args[position + 1 :])
    else:
        kwargs = {**kwargs, _CACHE: False}
    arguments = {**given.call.arguments, _CACHE: False}
    return replace(given, call=ForwardCall(args, kwargs, arguments))
