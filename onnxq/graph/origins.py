"""Origins of values: names of what a model was made from, which values carry along.

A value's origins are what it is the result of in the source of the model: nodes of a torch.export
program. A pass that puts another value in the place of one hands its origins on, so that they are
known in the canonical model. Values that a pass makes beside have none.
"""

import json
from collections.abc import Iterable

import onnx_ir as ir

_KEY = "onnxq.origins"  # of a value's metadata


def origins_of(value: ir.Value) -> tuple[str, ...]:
    """Names of what the value is the result of, the first one ahead of its copies."""
    return tuple(json.loads(value.metadata_props.get(_KEY, "[]")))


def set_origins(value: ir.Value, origins: Iterable[str]) -> None:
    """Notes what the value is the result of, in place of what was known."""
    found = list(dict.fromkeys(origins))
    value.metadata_props.pop(_KEY, None)
    if found:
        value.metadata_props[_KEY] = json.dumps(found)


def hand_on(old: ir.Value, new: ir.Value) -> None:
    """Adds the origins of a value to those of another one that is equal to it."""
    if _KEY in old.metadata_props:
        set_origins(new, (*origins_of(new), *origins_of(old)))


def move(old: ir.Value, new: ir.Value) -> None:
    """Makes the origins of a value those of another one, which computes it from now on."""
    set_origins(new, origins_of(old))
    set_origins(old, ())
