"""Tensors inside of tuples, lists, dicts, named tuples and dataclasses: walked, rebuilt and named.

    (x, (h, c))            leaves at the paths (0,), (1, 0), (1, 1)
    {"ids": x, "state": s} leaves at ("ids",), ("state", 0), ...

What torch's pytree knows is taken apart as torch.export takes it apart, so that the order of leaves
is the same; dataclasses and mappings that it does not know are taken apart too.
"""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from torch.utils import _pytree as pytree

Path = tuple[str | int, ...]
"""Positions in sequences; keys of mappings and names of fields."""


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Path and value of everything that is not taken apart, None included."""
    parts = children(value)
    if parts is None:
        yield path, value
        return
    for key, part in parts:
        yield from leaves(part, (*path, key))


def replaced(value: object, leaf: Callable[[Path, object], object], path: Path = ()) -> Any:
    """A value of the same structure, with leaf(path, old) in the place of each leaf."""
    parts = children(value)
    if parts is None:
        return leaf(path, value)
    return rebuilt(value, [replaced(part, leaf, (*path, key)) for key, part in parts])


def children(value: object) -> list[tuple[str | int, object]] | None:
    """Key and value of each direct part; None of a leaf."""
    if _is_known(value):
        flat, _ = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
        return list(zip(_keys(value, len(flat)), flat, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(name, getattr(value, name)) for name in names]
    if isinstance(value, MutableMapping):
        return list(value.items())
    return None


def attribute_access(value: object) -> bool:
    """Whether the parts are attributes, as of dataclasses and named tuples."""
    return dataclasses.is_dataclass(value) or pytree.is_namedtuple_instance(value)


def _is_known(value: object) -> bool:
    """Whether torch's pytree takes it apart."""
    return not pytree.tree_is_leaf(value)


def _keys(value: object, count: int) -> list[str | int]:
    """Names of the parts, as far as the type says them; else their positions."""
    if pytree.is_namedtuple_instance(value):
        return list(value._fields)  # type: ignore[attr-defined]  # of every named tuple
    if isinstance(value, MutableMapping):
        return list(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return list(names) if len(names) == count else list(range(count))
    return list(range(count))


def rebuilt(value: Any, parts: list[object]) -> object:
    """A value of the same structure with these as its direct parts, in the order of `children`."""
    if _is_known(value):
        _, spec = pytree.tree_flatten(value, is_leaf=lambda part: part is not value)
        return pytree.tree_unflatten(parts, spec)
    made = copy.copy(value)
    if isinstance(value, MutableMapping):
        made.update(zip(list(value), parts, strict=True))
        return made
    for field, part in zip(dataclasses.fields(value), parts, strict=True):
        object.__setattr__(made, field.name, part)  # frozen ones too
    return made


def shown(path: Path) -> str:
    """The path as code: hidden[0], batch['ids']."""
    first, *rest = path
    return str(first) + "".join(f"[{key!r}]" for key in rest)


def joined(path: Path) -> str:
    """The path as a name: hidden_0, batch_ids."""
    return re.sub(r"\W", "_", "_".join(str(key) for key in path)) or "_"


def unique(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names in order; one that is taken is numbered: x, x_2, x_3."""
    used, found = set(taken), []
    for name in names:
        made, number = name, 1
        while made in used:
            number += 1
            made = f"{name}_{number}"
        used.add(made)
        found.append(made)
    return found
