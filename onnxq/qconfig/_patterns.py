"""Patterns of a qconfig, names and globs, held against the names of a model."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from onnxq.errors import QConfigError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

WILDCARDS = frozenset("*?[")

Value = TypeVar("Value")


class Entries(dict[str, Value]):
    """Values by name or glob; never changed, as the mapping that has them is not."""

    @cached_property
    def globs(self) -> tuple[str, ...]:
        """Names with wildcards: few, where a mapping names every node of a large model."""
        return _globs(self)


def pattern_for(entries: Mapping[str, object], name: str) -> str | None:
    """The exact name, else the glob with most literal characters that matches; None: none does."""
    if name in entries:
        return name
    globs = entries.globs if isinstance(entries, Entries) else _globs(entries)
    matching = [pattern for pattern in globs if fnmatchcase(name, pattern)]
    return min(matching, key=lambda pattern: (-_literals(pattern), pattern), default=None)


def _globs(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not WILDCARDS.isdisjoint(name))


@cache
def _literals(pattern: str) -> int:
    return sum(character not in WILDCARDS for character in pattern)


def check_patterns(
    entries: Mapping[str, object],
    names: set[str],
    kind: str,
    meant: AbstractSet[str] = frozenset(),
    tensors: AbstractSet[str] = frozenset(),
) -> None:
    """Passes names and globs that fit the names of a model.

    Args:
        entries: by name or glob.
        names: of the model's nodes or tensors.
        kind: "node" or "tensor", for the message.
        meant: what else a name may have been meant for, such as an op type.
        tensors: names of tensors, where those of nodes are wanted.

    Raises:
        QConfigError: a name or glob fits nothing; the message suggests the nearest.
    """
    for pattern in entries:
        if pattern in names or any(fnmatchcase(name, pattern) for name in names):
            continue
        is_glob = not WILDCARDS.isdisjoint(pattern)
        what = f"{kind} '{pattern}' is not in the model"
        if is_glob:
            what = f"no {kind} matches '{pattern}' in the model"
        literals = "".join(character for character in pattern if character not in WILDCARDS)
        near = nearest(literals, names) if is_glob else nearest(pattern, names | meant)
        found = sorted(name for name in tensors if fnmatchcase(name, pattern))
        if found:
            near = (
                f" The tensor '{found[0]}' has such a name: give the node that makes it, which "
                "'onnxq verify' shows beside it."
            )
        raise QConfigError(
            f"qconfig: {what}, which has {len(names)} named {kind}s. "
            f"'onnxq inspect --json' lists them.{near}"
        )
