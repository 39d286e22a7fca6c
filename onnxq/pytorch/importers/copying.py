"""A copy of a module's structure, that shares its tensors and puts other things in given places.

copy.deepcopy packs quantized weights again, for the engine of the moment, which may refuse them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


def copy_structure(model: nn.Module, replaced: Mapping[int, nn.Module]) -> nn.Module:
    """The module and its submodules anew, tensors and other attributes shared.

    Args:
        model: it stays as it is, as long as nobody writes into the tensors of the copy.
        replaced: id of a submodule, or of an object in an attribute -> the module in its place.
    """
    return _copy(model, dict(replaced))


def _copy(module: nn.Module, known: dict[int, nn.Module]) -> nn.Module:
    if id(module) in known:
        return known[id(module)]
    made: nn.Module = object.__new__(type(module))
    known[id(module)] = made
    for name, value in vars(module).items():
        # dictionaries of parameters, buffers and hooks are the module's own; what is in them is not
        made.__dict__[name] = type(value)(value) if isinstance(value, dict) else value
    children = made.__dict__["_modules"]
    for name, child in children.items():
        children[name] = None if child is None else _copy(child, known)
    for name, value in list(vars(made).items()):
        if id(value) in known and name not in children:
            del made.__dict__[name]
            setattr(made, name, known[id(value)])
    return made
