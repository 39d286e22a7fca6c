"""Example inputs under the names that the exported model will have for them.

    forward(x, hidden)   (x, (h, c))                x, hidden_0, hidden_1
    forward(batch)       ({"ids": i, "mask": m},)   batch_ids, batch_mask
    forward(**inputs)    {"ids": i, "mask": m}      ids, mask

Tensors become inputs of the model; None, numbers, strings and the like are constants of it.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from onnxq.errors import QConfigError, UnsupportedError, kind_of, listed, nearest
from onnxq.pytorch.arguments.nesting import Path, joined, leaves, replaced, shown, unique

Inputs = torch.Tensor | Sequence[object] | Mapping[str, object]
"""A tensor; or forward's arguments, in order or by name, with tensors nested in them in any way."""

HALVES = (torch.float16, torch.bfloat16)
_CONSTANTS = (
    bool | int | float | complex | str | bytes | enum.Enum | torch.dtype | torch.device | None
)


class Slot:
    """The place of a tensor in an argument: a leaf, and so no dataclass."""

    __slots__ = ("name", "path")

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """How forward is called; in place of each tensor there is a Slot.

    Attributes:
        args: by position.
        kwargs: by keyword.
        arguments: all of them, by parameter; of *xs and **xs, each one by the name it is given.
    """

    args: tuple[object, ...]
    kwargs: dict[str, object]
    arguments: dict[str, object]

    def filled(self, tensors: Mapping[str, object]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these in the slots."""
        args, kwargs = replaced((self.args, self.kwargs), lambda _, x: _fill(x, tensors))
        return args, kwargs


def _fill(leaf: object, tensors: Mapping[str, object]) -> object:
    return tensors[leaf.name] if isinstance(leaf, Slot) else leaf


@dataclass(frozen=True, slots=True)
class BoundInputs:
    """Example inputs of a module."""

    tensors: dict[str, torch.Tensor]
    call: ForwardCall

    @property
    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The tensors as ONNX Runtime takes them; halves in float32, as exported models do."""
        return {
            name: (x if x.dtype not in HALVES else x.float()).detach().cpu().numpy()
            for name, x in self.tensors.items()
        }

    @property
    def _copies(self) -> dict[str, torch.Tensor]:
        return {name: x.clone() for name, x in self.tensors.items()}

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments passed by position, copies: forward may write into them."""
        return self.call.filled(self._copies)[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments passed by keyword, likewise."""
        return self.call.filled(self._copies)[1]

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments, by parameter."""
        tensors = self._copies
        found: dict[str, Any] = replaced(self.call.arguments, lambda _, x: _fill(x, tensors))
        return found

    @property
    def is_flat(self) -> bool:
        """Whether each argument is a tensor, whose input is called as the parameter."""
        return all(
            isinstance(value, Slot) and value.name == name
            for name, value in self.call.arguments.items()
        )

    def holding(self, tensors: Mapping[str, torch.Tensor]) -> BoundInputs:
        """The same call with other tensors."""
        return replace(self, tensors={**self.tensors, **tensors})

    def resized(self, axes: Mapping[str, Collection[int]], size: int) -> BoundInputs:
        """The same rows, the last one repeated or some cut, until these axes are `size` long.

        Rows that were sorted stay so, as lengths of packed sequences have to be.
        """
        tensors = dict(self.tensors)
        for name, of_input in axes.items():
            for axis in of_input:
                x = tensors[name]
                rows = torch.arange(size, device=x.device).clamp(max=x.shape[axis] - 1)
                tensors[name] = x.index_select(axis, rows)
        return self.holding(tensors)

    def __str__(self) -> str:
        """Names, dtypes and shapes."""
        return ", ".join(
            f"{name}={str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
            for name, x in self.tensors.items()
        )


def positional(tensors: Mapping[str, torch.Tensor]) -> BoundInputs:
    """Tensors that are passed by position, in this order."""
    slots = {name: Slot(name, (name,)) for name in tensors}
    return BoundInputs(dict(tensors), ForwardCall(tuple(slots.values()), {}, dict(slots)))


def bind(module: nn.Module, inputs: Inputs, names: Sequence[str] | None = None) -> BoundInputs:
    """The inputs as module.forward takes them, each tensor under a name."""
    owner = f"{type(module).__name__}.forward"
    bound = _arguments(inspect.signature(module.forward), owner, inputs)
    paths: list[Path] = []
    for path, leaf in leaves(_by_name(bound)):
        if isinstance(leaf, torch.Tensor):
            paths.append(path)
        elif not isinstance(leaf, _CONSTANTS):
            raise UnsupportedError(_neither(owner, path, leaf))
    if not paths:
        raise QConfigError(
            f"{owner}: there is no tensor among the example inputs, so that the exported model "
            "would have no input. Give those that forward computes with."
        )
    slots = {path: Slot(name, path) for path, name in _named(paths, names, owner).items()}
    tensors: dict[str, torch.Tensor] = {}

    def slot(path: Path, leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        # the exporter has no ONNX form for the strides of a slice whose length is dynamic
        tensors[slots[path].name] = leaf.detach().contiguous()
        return slots[path]

    for name, value in list(bound.arguments.items()):
        parameter = bound.signature.parameters[name]
        path = () if parameter.kind is parameter.VAR_KEYWORD else (name,)
        bound.arguments[name] = replaced(value, slot, path)
    return BoundInputs(tensors, ForwardCall(bound.args, bound.kwargs, _by_name(bound)))


def feeds(
    module: nn.Module, inputs: Inputs, names: Sequence[str] | None = None
) -> dict[str, npt.NDArray[np.generic]]:
    """Arrays by input name, to feed the exported model with.

    Args:
        module: that was exported.
        inputs: forward's arguments, nested as forward takes them.
        names: the `input_names` that it was exported with.
    Raises:
        QConfigError, UnsupportedError: as `export`.
    """
    return bind(module, inputs, names).arrays


def _arguments(signature: inspect.Signature, owner: str, inputs: Inputs) -> inspect.BoundArguments:
    if isinstance(inputs, np.ndarray):
        raise UnsupportedError(_neither(owner, ("inputs",), inputs))
    try:
        if isinstance(inputs, Mapping):
            return signature.bind(**inputs)
        return signature.bind(*([inputs] if isinstance(inputs, torch.Tensor) else inputs))
    except TypeError as error:
        known = list(signature.parameters)
        given = list(inputs) if isinstance(inputs, Mapping) else []
        unknown = [name for name in given if name not in known]
        hint = nearest(unknown[0], known) if unknown else ""
        if unknown and len(known) == 1 and not hint:
            mapping = f"where '{known[0]}' is the mapping itself"
            hint = f" In Python, {mapping}, pass it in a tuple: ({{...}},)."
        why = f"it takes {listed(known)}, and was given {listed(given)}" if unknown else error
        raise QConfigError(
            f"{owner}({', '.join(known)}) does not take the example inputs: {why}.{hint}"
        ) from error


def _by_name(bound: inspect.BoundArguments) -> dict[str, object]:
    """The arguments by parameter; those of **xs stand for themselves."""
    found: dict[str, object] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            found |= value
        else:
            found[name] = value
    return found


def _neither(owner: str, path: Path, leaf: object) -> str:
    """The message on what is neither a tensor nor a constant."""
    where = f"{owner}: example input '{shown(path)}' is {kind_of(leaf)}"
    if isinstance(leaf, np.ndarray | np.generic):
        return f"{where}; wanted a tensor. Pass torch.from_numpy(...) of it."
    return (
        f"{where}; wanted tensors, nested in tuples, lists, dicts, named tuples or dataclasses, or "
        "None, numbers and strings. Make it known to torch with "
        "torch.utils._pytree.register_pytree_node, or wrap the module in one that makes it."
    )


def _named(paths: list[Path], names: Sequence[str] | None, owner: str) -> dict[Path, str]:
    """A name per path: parameters keep theirs."""
    if names is None:
        whole = [path for path in paths if len(path) == 1]
        nested = [path for path in paths if len(path) > 1]
        taken = unique(joined(path) for path in whole)
        made = unique([joined(path) for path in nested], taken)
        return dict(zip([*whole, *nested], [*taken, *made], strict=True))
    if len(names) != len(paths) or len({*names}) != len(names):
        raise QConfigError(
            f"input_names: {owner} is given {len(paths)} tensors "
            f"({', '.join(shown(path) for path in paths)}); got {len(names)} names "
            f"({', '.join(names)}). Give one of its own for each."
        )
    return dict(zip(paths, names, strict=True))
