"""Text to plain data and back: strict YAML, and the settings of a command line."""

import reprlib
from collections.abc import Mapping
from pathlib import Path

import yaml

from onnxq.core.regular import why_no_file
from onnxq.errors import QConfigError, first_line, nearest

UNREADABLE = (
    yaml.YAMLError,
    ValueError,  # dates that are none, numbers of 5,000 digits
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
)
"""Errors of PyYAML and of the types that its tags stand for."""
_KINDS = ("global", "op", "node", "tensor")


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe subset; a key that is written twice is an error, not the last one's."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text)
        self.where = where


def _construct_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[object, object]:
    result: dict[object, object] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | None) or key in result:
            line = key_node.start_mark.line + 1
            raise QConfigError(
                f"{loader.where}: line {line}: key {reprlib.repr(key)} is repeated or no name."
            )
        result[key] = loader.construct_object(value_node, deep=True)
    return result


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def parse_yaml(source: str | Path) -> dict[str, object]:
    """The mapping at the top of a YAML text (str) or file (Path); {} for an empty one."""
    where, text = "qconfig", source
    if isinstance(source, Path):
        where = str(source)
        if why := why_no_file(source):
            raise QConfigError(f"qconfig '{source}' cannot be read: {why}. Give a YAML file.")
        try:
            text = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QConfigError(f"qconfig '{source}' cannot be read: {error}.") from error
    data = _parse(str(text), where)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise QConfigError(
            f"{where}: got {type(data).__name__}; wanted the keys global, op_types, nodes, tensors."
        )
    return data


def _parse(text: str, where: str) -> object:
    try:
        loader = _StrictLoader(text, where)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except UNREADABLE as error:
        why = str(error) if isinstance(error, yaml.YAMLError) else first_line(error)
        raise QConfigError(f"{where} is not YAML: {why}") from error
    except RecursionError as error:
        raise QConfigError(f"{where} is not YAML: it is nested too deeply.") from error


def dump_yaml(data: Mapping[str, object]) -> str:
    """YAML text of plain data, in its order."""
    return yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True, width=100)


def parse_override(text: str) -> tuple[str, str, object]:
    """(kind, pattern, data) of `op:Softmax=float` and the like; kinds: global, op, node, tensor."""
    # a name may hold ':' and '=' ("input:0"), a value only behind an opening brace
    head, brace, tail = text.partition("={")
    target, equals, value = (head, "=", "{" + tail) if brace else text.rpartition("=")
    kind, colon, pattern = target.partition(":")
    if (
        not equals
        or not value
        or kind not in _KINDS
        or bool(colon) == (kind == "global")
        or bool(colon) != bool(pattern)
    ):
        raise QConfigError(
            f"override '{text}': wanted global=VALUE, op:TYPE=VALUE, node:GLOB=VALUE or "
            f"tensor:GLOB=VALUE, with VALUE 'float', a name or YAML.{nearest(kind, _KINDS)}"
        )
    return kind, pattern, _parse(value, f"override '{text}'")
