"""Calls of Hugging Face's decoders without their cache of keys and values, which is no tensor."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

_CACHE = "use_cache"


def without_cache(model: nn.Module, given: BoundInputs) -> BoundInputs:
    """The call without a cache of keys and values, unless the caller says something of it."""
    parameters = inspect.signature(model.forward).parameters
    if _CACHE not in parameters or given.call.arguments.get(_CACHE) is not None:
        return given
    call = given.call
    position = list(parameters).index(_CACHE)
    if position < len(call.args):
        args = (*call.args[:position], False, *call.args[position + 1 :])
        call = replace(call, args=args, arguments={**call.arguments, _CACHE: False})
    else:
        call = replace(
            call, kwargs={**call.kwargs, _CACHE: False}, arguments={**call.arguments, _CACHE: False}
        )
    return replace(given, call=call)
