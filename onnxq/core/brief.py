"""Short texts of values: a line with their fields, in which what is long is counted or cut."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST = 60
"""Characters of one field."""
KILO = 1000.0


def brief(value: DataclassInstance) -> str:
    """The value's class and fields: Plan(target='portable', tensors={33 items}, ...).

    Collections whose text is long are counted, other long texts are cut; what is empty, None, or
    has no place in the value's own repr is left out.
    """
    parts = [f"{name}={text}" for name, text in shown_fields(value)]
    return f"{type(value).__name__}({', '.join(parts)})"


def shown_fields(value: DataclassInstance) -> list[tuple[str, str]]:
    """(name, short text) of the fields that `brief` shows."""
    shown = [(f.name, getattr(value, f.name)) for f in fields(value) if f.repr]
    said = [(name, one) for name, one in shown if not isinstance(one, Collection) or one]
    return [(name, _short(one)) for name, one in said if one is not None]


def size_text(size_bytes: int) -> str:
    """Like 1.23 MB; decimal units."""
    value, units = float(size_bytes), ["B", "kB", "MB", "GB", "TB"]
    while value >= KILO and len(units) > 1:
        value, units = value / KILO, units[1:]
    return f"{size_bytes} B" if units[0] == "B" else f"{value:.2f} {units[0]}"


def _short(one: object) -> str:
    text = repr(one)
    if len(text) <= MOST:
        return text
    if isinstance(one, Collection) and not isinstance(one, str | bytes):
        opening, closing = ("(", ")") if isinstance(one, tuple) else ("{", "}")
        return f"{opening}{len(one)} items{closing}"
    return f"{text[: MOST - 3]}..."
