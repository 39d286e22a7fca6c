"""Finds axes of example inputs that forward takes in other lengths: tokens, steps, sound.

Sizes that occur along several axes are one length: those of ids and of their mask. What is one is
tried: forward runs with one more of them, or with one less where a table of positions ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.pytorch.arguments.forward import FORWARD_RAISES, compute

if TYPE_CHECKING:
    from torch import nn

    from onnxq.pytorch.arguments.axes import Axes
    from onnxq.pytorch.arguments.bound_inputs import BoundInputs

LARGEST_RANK = 3  # (batch, length, features); what has more are images, whose size stays
_LEAST = 2  # of an example; torch.export fixes a length of 1

Group = dict[str, tuple[int, ...]]


def length_axes(module: nn.Module, bound: BoundInputs, batch: Axes) -> dict[str, set[int]]:
    """Axes of each input that are lengths; inputs without one are left out."""
    found: dict[str, set[int]] = {}
    for group in _groups(bound, batch):
        first = {name: axes[:1] for name, axes in group.items()}
        taken = next((g for g in _distinct(group, first) if _is_length(module, bound, g)), {})
        for name, axes in taken.items():
            found.setdefault(name, set()).update(axes)
    return found


def _groups(bound: BoundInputs, batch: Axes) -> list[Group]:
    """Axes of equal length, by input."""
    groups: dict[int, Group] = {}
    for name, x in bound.tensors.items():
        for axis, size in enumerate(x.shape):
            is_open = axis in batch.of.get(name, {})
            if x.ndim <= LARGEST_RANK and size >= _LEAST and not is_open:
                group = groups.setdefault(size, {})
                group[name] = (*group.get(name, ()), axis)
    return list(groups.values())


def _distinct(whole: Group, first: Group) -> list[Group]:
    return [whole] if whole == first else [whole, first]


def _is_length(module: nn.Module, bound: BoundInputs, group: Group) -> bool:
    name, axes = next(iter(group.items()))
    size = bound.tensors[name].shape[axes[0]]
    return any(_runs(module, bound.resized(group, other)) for other in (size + 1, size - 1))


def _runs(module: nn.Module, bound: BoundInputs) -> bool:
    try:
        compute(module, bound)
    except FORWARD_RAISES:
        return False
    return True
