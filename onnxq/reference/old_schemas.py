"""Nodes of older opsets as their newest schema has them, which is the one that kernels read.

    Split<split = [1, 3]>(x)     ->     Split(x, [1, 3])           opset 2 to 12
    Resize(x, scales)            ->     Resize(x, -, scales)       opset 10

ONNX made inputs of attributes (axes, pads, sizes), and put inputs between others. Both keep their
names, so that the history of schemas in onnx.defs says where each belongs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.operator import Array, AttributeValue

NEW_NAMES = {"value": "constant_value"}
"""Pad's attribute until opset 10 -> the input's name since; no other got a new one."""
MEANT = {
    ("Resize", 10): {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "opset 10"}
}
"""(op type, since_version) -> attributes that say what the operator did before it had them."""


@dataclass(frozen=True, slots=True)
class Move:
    """Places of a node's arguments in the newest schema.

    Attributes:
        inputs: new slot of each old one.
        attributes: name of an attribute -> slot of the input that it became.
        meant: attributes that the newest schema needs for the same meaning.
    """

    inputs: tuple[int, ...] = ()
    attributes: Mapping[str, int] = field(default_factory=dict)
    meant: Mapping[str, AttributeValue] = field(default_factory=dict)

    def newest_attributes(
        self, attributes: Mapping[str, AttributeValue]
    ) -> dict[str, AttributeValue]:
        """The attributes that stay attributes, and what the old schema meant without saying."""
        return {**self.meant, **{n: v for n, v in attributes.items() if n not in self.attributes}}

    def newest_inputs(
        self, inputs: Sequence[Array | None], attributes: Mapping[str, AttributeValue]
    ) -> list[Array | None]:
        """The inputs in their new slots, and those that were attributes.

        Lists of numbers become int64, single floats the type of the first input.
        """
        slots = [self.inputs[i] if i < len(self.inputs) else i for i in range(len(inputs))]
        taken = {slot: attributes[n] for n, slot in self.attributes.items() if n in attributes}
        found: list[Array | None] = [None] * (1 + max([*slots, *taken], default=-1))
        for slot, x in zip(slots, inputs, strict=True):
            found[slot] = x
        for slot, value in taken.items():
            found[slot] = _as_input(value, inputs)
        return found


NOTHING = Move()
"""Nodes whose arguments lie where the newest schema has them."""


def move_of(op_type: str, version: int) -> Move:
    """The way from the schema that an operator of ai.onnx had in an opset to its newest."""
    try:
        old = onnx.defs.get_schema(op_type, version)
    except onnx.defs.SchemaError:
        return NOTHING
    return _move(op_type, old.since_version)


@functools.cache
def _move(op_type: str, since: int) -> Move:
    old, new = onnx.defs.get_schema(op_type, since), onnx.defs.get_schema(op_type)
    slots = {formal.name.lower(): i for i, formal in enumerate(new.inputs)}
    inputs = tuple(slots.get(formal.name.lower(), i) for i, formal in enumerate(old.inputs))
    lost = [name for name in old.attributes if name not in new.attributes]
    became = {name: slots.get(NEW_NAMES.get(name, name).lower()) for name in lost}
    attributes = {name: slot for name, slot in became.items() if slot is not None}
    meant = MEANT.get((op_type, since), {})
    if not attributes and not meant and inputs == tuple(range(len(inputs))):
        return NOTHING
    return Move(inputs, attributes, meant)


def _as_input(value: AttributeValue, inputs: Sequence[Array | None]) -> Array:
    """The array that the newest operator gets in place of an attribute."""
    if not isinstance(value, float):
        return np.asarray(value, np.int64)
    first = inputs[0] if inputs else None
    return np.asarray(value, np.float32 if first is None else first.dtype)
