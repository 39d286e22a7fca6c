"""The QOperator format: nodes that compute on integers, made of the QDQ format by `fuse`.

What has no integer kernel stays between DequantizeLinear and QuantizeLinear, and is named in the
model's metadata, so that it can be reported later too. So do the guards of nodes left in float:
ONNX Runtime fuses DequantizeLinear -> op -> QuantizeLinear in this form as in the other.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxq.errors import QConfigError, listed, nearest
from onnxq.qdq.fuse import Int8Activations, fuse

KEPT_KEY = "onnxq.kept_qdq"
"""Metadata: JSON object, name of a node that stays between DQ and Q -> why."""
TABLES_KEY = "onnxq.tables"
"""Metadata: JSON list, names of nodes that are a lookup table here, and float in QDQ format."""


@dataclass(frozen=True, slots=True)
class Remains:
    """Rest of a QOperator model, which breaks the rule that every node computes on integers.

    Attributes:
        kept: name of a node between DequantizeLinear and QuantizeLinear -> why.
        tables: names of nodes that are tables, whose integers may differ from the QDQ format's.
    """

    kept: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """One per reason, for the report."""
        groups: dict[str, list[str]] = {}
        for name, reason in self.kept.items():
            groups.setdefault(reason, []).append(name)
        found = [
            f"between DequantizeLinear and QuantizeLinear: {listed(names)}: {reason}."
            for reason, names in groups.items()
        ]
        if self.tables:
            found.append(
                "a table of all integers, float between Q/DQ nodes in QDQ format: "
                f"{listed(self.tables)}."
            )
        return found


def write_qoperator(qdq: ir.Model, int8: Int8Activations = Int8Activations.SHIFTED) -> ir.Model:
    """The QOperator format of a model in QDQ format, with what remains of that in its metadata."""
    fused = fuse(qdq, int8)
    fused.model.metadata_props[KEPT_KEY] = json.dumps(dict(fused.kept))
    fused.model.metadata_props[TABLES_KEY] = json.dumps(list(fused.tables))
    return fused.model


def remains(model: ir.Model) -> Remains:
    """Remains that `write_qoperator` put into the metadata; none for another model."""
    kept = json.loads(model.metadata_props.get(KEPT_KEY, "{}"))
    return Remains(kept, tuple(json.loads(model.metadata_props.get(TABLES_KEY, "[]"))))


FORMATS: dict[str, Callable[[ir.Model, Int8Activations], ir.Model]] = {
    "qdq": lambda qdq, _: qdq,  # of int8, ONNX Runtime decides when it loads the model
    "qoperator": write_qoperator,
}
"""Name of a form -> what makes it of the QDQ format, given what becomes of int8 activations."""


def check_format(format: object) -> None:
    """Passes where the format is known."""
    if not isinstance(format, str) or format not in FORMATS:
        raise QConfigError(
            f"format {format!r} is not known; known: {', '.join(FORMATS)}."
            f"{nearest(str(format), FORMATS)}"
        )
