"""Where modules stand in a model; one may stand in several places, as layers that share weights do.

nn.Module.named_children() names the first of these places alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


def places(parent: nn.Module) -> list[tuple[str, nn.Module]]:
    """(name, child) of every place in a module, in order."""
    return [(name, child) for name, child in vars(parent)["_modules"].items() if child is not None]


def exchanged(root: nn.Module, others: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """The model with other modules in all places of some; changed in place, but for the root.

    Args:
        root: of the model.
        others: module -> what takes its places.
    """
    for parent in list(root.modules()):
        for name, child in places(parent):
            if child in others:
                setattr(parent, name, others[child])
    return others.get(root, root)
