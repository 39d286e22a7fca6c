"""Typed reads from a kernel's attributes, with the default that the ONNX schema gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from onnxq.errors import ShapeError
from onnxq.operator import AttributeValue

Attributes = Mapping[str, AttributeValue]


def integer(attributes: Attributes, name: str, default: int) -> int:
    """The attribute as an int. Raises ShapeError where it is none."""
    value = attributes.get(name, default)
    return int(value) if isinstance(value, int | np.integer) else _refuse(name, value, "an int")


def real(attributes: Attributes, name: str, default: float) -> float:
    """The attribute as a float. Raises ShapeError where it is no number."""
    value = attributes.get(name, default)
    number = isinstance(value, int | float | np.integer | np.floating)
    return float(value) if number else _refuse(name, value, "a float")  # type: ignore[arg-type]


def text(attributes: Attributes, name: str, default: str) -> str:
    """The attribute as a str; onnx hands strings over as bytes in some places."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def integers(attributes: Attributes, name: str, default: Sequence[int]) -> list[int]:
    """The attribute as a list of int; an empty list counts as absent.

    Raises:
        ShapeError: it is something else.
    """
    value = attributes.get(name)
    if value is None:
        return [int(i) for i in default]
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray):
        _refuse(name, value, "a list of ints")
    if not all(isinstance(i, int | np.integer) for i in value):
        _refuse(name, value, "a list of ints")
    return [int(i) for i in (value if len(value) else default)]


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    raise ShapeError(f"attribute {name} is {value!r}; wanted {wanted}.")
