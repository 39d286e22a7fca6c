"""Reasons as values: a type, fields, and words for people.

    class SlowInIntegers(Reason):
        WORDS = "ONNX Runtime runs {label} in integers at {ratio:.2f} of its float speed"
        label: str
        ratio: float

Code asks for the type of a reason and for its fields. Nobody compares, cuts or searches its words:
tests/core/test_reason.py looks for that in all of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Self, dataclass_transform

from onnxq.core.saved import plain_fields, record

# fmt: off
SHARED = frozenset([
    "label", "op_type", "said", "message", "weight", "weights", "within", "gives_integers", "run",
    "missing", "dtype", "precision", "spec", "method", "bits",
])
# fmt: on
"""Names of fields that tell kinds apart beside the type; other fields are a node's own."""

_kinds: dict[str, type[Reason]] = {}
"""Name of a kind -> kind, of all whose modules are imported: what reads them back imports them."""


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Reason:
    """Base of all reasons, each a frozen dataclass: equal to others of its type with equal fields.

    Attributes:
        WORDS: template of `words`, with the fields' names in braces.
        EXPECTED: whether nobody would want the node to be otherwise.
    """

    WORDS: ClassVar[str] = ""
    EXPECTED: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        _kinds[cls.__name__] = dataclass(frozen=True)(cls)

    @property
    def words(self) -> str:
        """The reason as a user reads it."""
        return self.WORDS.format_map(
            {field.name: getattr(self, field.name) for field in fields(self)}
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """Reports group by this: the type, the SHARED fields, and the kinds of inner reasons."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        own = [value for name, value in values.items() if name in SHARED]
        inner = [value.kind for value in values.values() if isinstance(value, Reason)]
        return (type(self).__name__, *own, *inner)

    @property
    def severity(self) -> float:
        """Order of reasons of one kind: the worst has the largest."""
        return 0.0

    def __str__(self) -> str:
        return self.words

    def to_dict(self) -> dict[str, object]:
        """{"kind": name of the type, "words": for people, and the fields}."""
        return {"kind": type(self).__name__, "words": self.words, **plain_fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Self:
        """The reason that `to_dict` wrote."""
        kind = _kinds[str(data["kind"])]
        found = record(kind, {k: v for k, v in data.items() if k not in ("kind", "words")})
        if not isinstance(found, cls):
            raise TypeError(f"{kind.__name__} is no {cls.__name__}")
        return found
