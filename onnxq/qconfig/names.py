"""Names and globs of nodes and tensors in a qconfig, held against those of a model."""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import TypeVar

import onnx_ir as ir

from onnxq.errors import QConfigError, listed, nearest
from onnxq.qconfig._values import Entry

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
    """Passes names and globs that fit the names of a model."""
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


def absent_op_types(nodes: Iterable[ir.Node], op_types: Mapping[str, Entry]) -> list[str]:
    """A note on the op types that the qconfig wants quantized and the canonical model lacks."""
    present = {node.op_type for node in nodes}
    absent = [name for name, entry in op_types.items() if entry is not None and name not in present]
    if not absent:
        return []
    return [f"the qconfig names op types that are not in the model: {listed(absent)}"]


def excluding(nodes: Mapping[str, Entry], names: Collection[str]) -> Mapping[str, Entry]:
    """Entries that leave these nodes, by name or glob, in float, whatever they said of them."""
    is_list = isinstance(names, Collection) and not isinstance(names, (str, bytes))
    if not is_list or not all(isinstance(name, str) for name in names):
        raise QConfigError(
            f"exclude: got {names!r}; wanted a list of names of nodes, such as ['/fc/MatMul']."
        )
    return {**nodes, **dict.fromkeys(names)}
