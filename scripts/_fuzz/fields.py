"""Mutations of a protobuf by field: any message, any field, at any depth."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    from google.protobuf.message import Message

    Value = Any  # a message, a number, text or bytes

NOT_UTF8 = "\x02not-utf8\x02"
"""Becomes bytes that are no UTF-8, of the same length, once the protobuf is bytes: `as_bytes`."""

INTEGERS = (0, 1, -1, 2, 7, 8, 16, 22, 255, 2**31 - 1, -(2**31))
LONG_INTEGERS = (*INTEGERS, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e38, 1e-45)
TEXTS = ("", " ", "../x", "/dev/zero", "x" * 5000, "é\n[red]'\"", "ai.onnx", "Conv", NOT_UTF8)
_F = FieldDescriptor
_FLOATS = (_F.TYPE_FLOAT, _F.TYPE_DOUBLE)
_UNSIGNED = (_F.TYPE_UINT32, _F.TYPE_UINT64)


@dataclass(frozen=True, slots=True)
class Place:
    """A field of a message that is set, or one element of a repeated one.

    Attributes:
        message: that has the field.
        field: which one.
        index: of the element; None: the field is no list.
    """

    message: Message
    field: FieldDescriptor
    index: int | None

    @property
    def value(self) -> Value:
        """The content."""
        held = getattr(self.message, self.field.name)
        return held if self.index is None else held[self.index]

    @property
    def is_message(self) -> bool:
        """Whether the content is a message itself."""
        return self.field.message_type is not None

    @property
    def name(self) -> str:
        """Message and field, as in NodeProto.input[1]."""
        at = "" if self.index is None else f"[{self.index}]"
        return f"{self.message.DESCRIPTOR.name}.{self.field.name}{at}"

    def put(self, value: Value) -> None:
        """Exchanges the content."""
        if self.is_message:
            self.value.CopyFrom(value)
        elif self.index is None:
            setattr(self.message, self.field.name, value)
        else:
            getattr(self.message, self.field.name)[self.index] = value

    def drop(self) -> None:
        """Takes the content away."""
        if self.index is None:
            self.message.ClearField(self.field.name)
        else:
            del getattr(self.message, self.field.name)[self.index]

    def double(self) -> None:
        """Adds the element of a list once more; elsewhere nothing."""
        if self.index is None:
            return
        held = getattr(self.message, self.field.name)
        if self.is_message:
            held.add().CopyFrom(self.value)
        else:
            held.append(self.value)

    def swap(self, other: int) -> None:
        """Exchanges an element of a list with another one; elsewhere nothing."""
        if self.index is None:
            return
        held = getattr(self.message, self.field.name)
        if not self.is_message:
            held[self.index], held[other] = held[other], held[self.index]
            return
        kept = type(self.value)()
        kept.CopyFrom(self.value)
        self.value.CopyFrom(held[other])
        held[other].CopyFrom(kept)


def places(message: Message) -> list[Place]:
    """Every place in a message and in those that it holds; of long lists of numbers a few."""
    found, waiting = [], [message]
    while waiting:
        one = waiting.pop()
        for field, held in one.ListFields():
            many = not isinstance(held, str | bytes) and hasattr(held, "__len__")
            for index in range(min(len(held), 64)) if many else (None,):
                place = Place(one, field, index)
                found.append(place)
                if place.is_message:
                    waiting.append(place.value)
    return found


def mutate(message: Message, rng: np.random.Generator) -> str:
    """Changes one place; what and how."""
    everything = places(message)
    # a place by its kind first: else half of all mutations are of dims and names
    kinds: dict[tuple[str, str], list[Place]] = {}
    for place in everything:
        kinds.setdefault((place.message.DESCRIPTOR.name, place.field.name), []).append(place)
    chosen = list(kinds.values())[rng.integers(len(kinds))]
    place = chosen[rng.integers(len(chosen))]
    name = place.name
    actions = _of_message if place.is_message else _of_number
    options = [*_any(place, rng), *actions(place, everything, rng)]
    words, act = options[rng.integers(len(options))]
    try:
        act()
    except (ValueError, TypeError) as error:  # a number that the field cannot hold
        return f"{name}: nothing ({type(error).__name__})"
    return f"{name}: {words}"


def _any(place: Place, rng: np.random.Generator) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "dropped", place.drop
    if place.index is not None:
        other = int(rng.integers(len(getattr(place.message, place.field.name))))
        yield "twice", place.double
        yield f"exchanged with [{other}]", lambda: place.swap(other)


def _of_message(
    place: Place, everything: Sequence[Place], rng: np.random.Generator
) -> Iterator[tuple[str, Callable[[], None]]]:
    kind = place.field.message_type.name
    alike = [p for p in everything if p.is_message and p.field.message_type.name == kind]
    other = alike[rng.integers(len(alike))]
    copy = type(other.value)()
    copy.CopyFrom(other.value)
    yield f"a copy of {other.name}", lambda: place.put(copy)
    yield "emptied", place.value.Clear


def _of_number(
    place: Place, everything: Sequence[Place], rng: np.random.Generator
) -> Iterator[tuple[str, Callable[[], None]]]:
    for value in _others(place, everything, rng):
        words = f"{repr(place.value)[:40]} -> {repr(value)[:40]}"
        yield words, functools.partial(place.put, value)


def _others(place: Place, everything: Sequence[Place], rng: np.random.Generator) -> list[Value]:
    """Some other values for the place."""
    kind, value = place.field.type, place.value
    if kind == _F.TYPE_STRING:
        texts = [p.value for p in everything if p.field.type == _F.TYPE_STRING]
        return [str(rng.choice(TEXTS)), *(texts[rng.integers(len(texts))] for _ in range(3))]
    if kind == _F.TYPE_BYTES:
        return [b"", value[:-1], value + b"\0", value * 2, _flipped(value, rng), b"\xff" * 8]
    if kind in _FLOATS:
        return [float(rng.choice(FLOATS)), -value, value * 1e30]
    if kind == _F.TYPE_ENUM:
        return [int(rng.integers(0, 17))]
    limit = LONG_INTEGERS if kind in (_F.TYPE_INT64, _F.TYPE_UINT64) else (*INTEGERS, *range(1, 25))
    numbers = [int(limit[rng.integers(len(limit))]) for _ in range(2)]
    numbers += [value + 1, value - 1, -value, value * 2]
    return [abs(n) for n in numbers] if kind in _UNSIGNED else numbers


def _flipped(data: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        if changed:
            changed[rng.integers(len(changed))] = int(rng.integers(256))
    return bytes(changed)


def as_bytes(message: Message) -> bytes:
    """The message as bytes, NOT_UTF8 as what it stands for."""
    data: bytes = message.SerializeToString()
    return data.replace(NOT_UTF8.encode(), b"\xff\xfe" * (len(NOT_UTF8) // 2))


def mutated_bytes(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """(bytes with some flipped, gone, twice or others in their place, what was done)."""
    at, length = int(rng.integers(len(data))), int(rng.integers(1, 24))
    end = at + length
    made = {
        "flipped": lambda: data[:at] + _flipped(data[at:end], rng) + data[end:],
        "gone": lambda: data[:at] + data[end:],
        "twice": lambda: data[:end] + data[at:],
        "random": lambda: data[:at] + rng.bytes(length) + data[end:],
        "cut off": lambda: data[:at],
    }
    words = str(rng.choice(list(made)))
    return made[words](), f"bytes {at} to {end} {words}"
