"""One codec for saved values: frozen dataclasses to plain values that JSON holds, and back.

    str, int, bool, None           themselves
    float                          itself; "inf", "-inf" and "nan", which JSON lacks
    Enum                           its value
    tuple[T, ...], tuple[A, B]     a list
    Mapping[str, T]                an object
    dataclass                      an object: a key for each field that counts in comparisons
    class with to_dict, from_dict  their form
    A | B                          the first whose kind, or whose required keys, the data have

The annotations are the schema, and are read at run time: their names are imported there. A key that
is missing has the field's default, so that a new field with a default reads older files. `Saved`
is the base of values with files of their own.
"""

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from onnxq.core.atomic import write_atomically
from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, OnnxqError
from onnxq.shown import shown_json

UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    OnnxqError,
)
"""Errors of reading another file, or an altered one; a class with `from_dict` raises its own."""
NOT_FINITE = ("inf", "-inf", "nan")
INTEGERS = 1 << 63  # sizes, counts and places have 64 bits wherever they are used
UNIONS = (types.UnionType, typing.Union)


@dataclass(frozen=True, slots=True)
class Key:
    """Another key than the field's name: Annotated[str, Key("float")]."""

    name: str


@dataclass(frozen=True, slots=True)
class OpenBounds:
    """null for an infinite end: Annotated[tuple[float, float], OpenBounds()]."""


class Saved:
    """Base of frozen dataclasses that are saved as files.

    Attributes:
        FORMAT: name and version of the form; a file of another is refused.
        NOUN: its name for people, with an article if it has one.
        ANEW: advice to someone whose file cannot be read.
        DERIVED: properties that are written for other readers, and follow from the rest.
    """

    FORMAT: ClassVar[str]
    NOUN: ClassVar[str]
    ANEW: ClassVar[str]
    DERIVED: ClassVar[tuple[str, ...]] = ()

    def to_dict(self) -> dict[str, object]:
        """Plain values that JSON can hold; float32 survives exactly."""
        derived = {name: plain(getattr(self, name)) for name in self.DERIVED}
        return {"format": self.FORMAT, **plain_fields(self), **derived}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return shown_json(json.dumps(self.to_dict(), indent=1, allow_nan=False))

    def save(self, path: str | Path) -> None:
        """Writes `to_json`, atomically.

        Raises:
            OutputError: the path cannot be written.
        """
        text = self.to_json()
        write_atomically(path, lambda file: file.write(text.encode()))

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """The value that `to_dict` wrote."""
        try:
            return cls._read(data)
        except UNREADABLE as error:
            raise CalibrationError(_not_ours(cls, error)) from error

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote.

        Raises:
            CalibrationError: the file is missing, or of another form or version.
        """
        if why := why_no_file(path):
            raise CalibrationError(f"'{path}' cannot be read: {why}. {cls.ANEW}")
        try:
            return cls._read(json.loads(Path(path).read_text("utf-8")))
        except OSError as error:
            reason = error.strerror or error
            raise CalibrationError(f"'{path}' cannot be read: {reason}. {cls.ANEW}") from error
        except UNREADABLE as error:
            raise CalibrationError(f"{path}: {_not_ours(cls, error)}") from error

    @classmethod
    def _read(cls, data: object) -> Self:
        if not isinstance(data, Mapping):
            raise TypeError(f"got {data!r:.80}; wanted an object")
        if data["format"] != cls.FORMAT:
            raise ValueError(f"format: got {data['format']!r}; wanted {cls.FORMAT!r}")
        given = {key: item for key, item in data.items() if key not in ("format", *cls.DERIVED)}
        return typing.cast("Self", record(cls, given, ""))


def _not_ours(kind: type[Saved], error: Exception) -> str:
    return f"not {kind.NOUN} that this version of onnxq wrote ({error!r}). {kind.ANEW}"


# --- writing


def plain(value: object) -> object:
    """The value as JSON can hold it (see the module)."""
    match value:
        case enum.Enum():
            return value.value
        case None | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case tuple() | list():
            return [plain(item) for item in value]
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
    return value.to_dict() if hasattr(value, "to_dict") else plain_fields(value)


def plain_fields(value: Any) -> dict[str, object]:
    """Key -> `plain` form, of the fields of a dataclass that are saved."""
    made = {}
    for name, field in _fields(value.__class__).items():
        item = getattr(value, field.name)
        ends = field.open_bounds and isinstance(item, tuple)
        made[name] = [e if math.isfinite(e) else None for e in item] if ends else plain(item)
    return made


# --- reading


def read(kind: Any, data: object, where: str = "") -> Any:
    """The value of that kind whose `plain` form the data are."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in UNIONS:
        arms = [arm for arm in arguments if _suits(arm, data)]
        return read(arms[0] if arms else _refuse(where, data, kind), data, where)
    if not _suits(kind, data):
        _refuse(where, data, kind)
    if origin is tuple:
        return _tuple(arguments, typing.cast("list[object]", data), where)
    if origin is None and not isinstance(data, Mapping):
        return kind(data) if data is not None else None
    entries = typing.cast("Mapping[str, object]", data)
    if origin is Mapping:
        return {key: read(arguments[1], v, f"{where}['{key}']") for key, v in entries.items()}
    return kind.from_dict(entries) if hasattr(kind, "from_dict") else record(kind, entries, where)


def _suits(kind: Any, data: object) -> bool:
    """Whether the data are of JSON's kind for it; of dataclasses: with every key that is needed."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return isinstance(data, list | tuple)
    if origin is Mapping or hasattr(kind, "from_dict"):
        return isinstance(data, Mapping)
    if dataclasses.is_dataclass(kind):
        found: dict[str, Any] = _fields(kind)  # type: ignore[arg-type]  # classes have a hash
        needed = {key for key, field in found.items() if field.needed}
        return isinstance(data, Mapping) and data.keys() >= needed
    if kind is float:
        return data in NOT_FINITE or type(data) is float or _suits(int, data)
    if issubclass(kind, enum.Enum):
        return any(data == member.value for member in kind)
    if kind is int:
        return type(data) is int and -INTEGERS <= data < INTEGERS
    return type(data) is kind


def _tuple(kinds: tuple[Any, ...], data: list[object], where: str) -> tuple[object, ...]:
    if kinds[1:] == (...,):
        kinds = kinds[:1] * len(data)
    pairs = zip(kinds, data, strict=True)
    return tuple(read(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(pairs))


def record(kind: Any, data: Mapping[str, object], where: str = "") -> object:
    """The dataclass whose `plain_fields` the data are; see `read`."""
    values = {}
    for key, item in data.items():
        field = _fields(kind).get(key)
        if field is None:
            raise ValueError(f"{where}: {kind.__name__} has no '{key}'")
        if field.open_bounds and isinstance(item, list):
            ends = zip(item, (-math.inf, math.inf), strict=True)
            item = [infinite if end is None else end for end, infinite in ends]
        values[field.name] = read(field.kind, item, f"{where}.{key}".lstrip("."))
    return kind(**values)


def _refuse(where: str, got: object, kind: Any) -> typing.NoReturn:
    raise TypeError(f"{where}: got {got!r:.80}; wanted {getattr(kind, '__name__', kind)}")


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that is saved: its name and kind, and whether the file must have it."""

    name: str
    kind: Any
    needed: bool
    open_bounds: bool


@functools.cache
def _fields(kind: Any) -> dict[str, _Field]:
    """Key in the file -> field, in the order of the dataclass."""
    hints, made, missing = typing.get_type_hints(kind, include_extras=True), {}, dataclasses.MISSING
    for field in dataclasses.fields(kind):
        if not field.compare:
            continue
        hint, marks = hints[field.name], []
        if typing.get_origin(hint) is Annotated:
            hint, *marks = typing.get_args(hint)
        key = next((mark.name for mark in marks if isinstance(mark, Key)), field.name)
        needed = field.default is missing and field.default_factory is missing
        made[key] = _Field(field.name, hint, needed, OpenBounds() in marks)
    return made
