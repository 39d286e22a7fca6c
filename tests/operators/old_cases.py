"""Examples of operators as older opsets write them: attributes in place of inputs, inputs moved."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnxq.operator import Array, Case, IntegerOperator, Operator

OLDEST = 7
OLD_NAMES = {"constant_value": "value"}  # of Pad


def versions(op_type: str) -> list[int]:
    """Opsets from OLDEST on whose schema of the operator differs from that of the one before."""
    since = sorted(
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if (schema.domain, schema.name) == ("", op_type)
    )
    return sorted({max(OLDEST, version) for version in since})


def old_cases(operator: Operator | IntegerOperator, opset: int) -> Iterator[Case]:
    """The operator's examples in that opset; those that it cannot express are left out."""
    schema = onnx.defs.get_schema(operator.op_type, opset)
    for case in operator.cases():
        found = _downgraded(case, schema, onnx.defs.get_schema(operator.op_type))
        if found is not None:
            yield dataclasses.replace(found, opset=opset)


def _downgraded(case: Case, old: onnx.defs.OpSchema, new: onnx.defs.OpSchema) -> Case | None:
    """None: an input or attribute that the old schema has no place for."""
    slots = [formal.name.lower() for formal in old.inputs]
    known = {name.lower(): name for name in old.attributes}
    inputs: dict[int, Array] = {}
    attributes = dict(case.attributes or {})
    constants = []
    for i, x in enumerate(case.inputs):
        name = new.inputs[min(i, len(new.inputs) - 1)].name.lower()
        became = known.get(OLD_NAMES.get(name, name))
        if x is None:
            continue
        if name in slots or i < len(slots) or len(slots) == 1 == len(new.inputs):
            slot = slots.index(name) if name in slots and len(new.inputs) > 1 else i
            inputs[slot] = x
            constants += [slot] if i in case.constants else []
        elif became is not None:
            scalar = old.attributes[became].type in (
                onnx.defs.OpSchema.AttrType.INT,
                onnx.defs.OpSchema.AttrType.FLOAT,
            )
            attributes[became] = x.reshape(-1).tolist()[0] if scalar else x.tolist()
        else:
            return None
    if not attributes.keys() <= old.attributes.keys():
        return None
    if (old.name, old.since_version) == ("Resize", 11):  # roi was no optional input yet
        inputs[1] = np.empty(0, np.float32)
        inputs.setdefault(2, np.empty(0, np.float32))
        constants += [1, 2]
    given = tuple(inputs.get(i) for i in range(max(inputs, default=-1) + 1))
    return dataclasses.replace(
        case, inputs=given, constants=tuple(sorted({*constants})), attributes=attributes
    )
