"""Typed reads from a kernel's attributes, with the default that the ONNX schema gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from onnxq.operator import AttributeValue

Attributes = Mapping[str, AttributeValue]


def integer(attributes: Attributes, name: str, default: int) -> int:
    """The attribute as an int."""
    return int(cast("int", attributes.get(name, default)))


def real(attributes: Attributes, name: str, default: float) -> float:
    """The attribute as a float."""
    return float(cast("float", attributes.get(name, default)))


def text(attributes: Attributes, name: str, default: str) -> str:
    """The attribute as a str; onnx hands strings over as bytes in some places."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def integers(attributes: Attributes, name: str, default: Sequence[int]) -> list[int]:
    """The attribute as a list of int; an empty list counts as absent."""
    value = cast("Sequence[int] | None", attributes.get(name))
    if value is None or len(value) == 0:
        return [int(i) for i in default]
    return [int(i) for i in value]
