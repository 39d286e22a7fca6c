"""Op types that a QConfigMapping names and a model lacks."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from onnxq.errors import listed
from onnxq.qconfig import QConfigMapping


def absent_op_types(nodes: Iterable[ir.Node], qconfig: QConfigMapping) -> list[str]:
    """A note on the op types that the qconfig wants quantized and the canonical model lacks."""
    present = {node.op_type for node in nodes}
    asked = [name for name, entry in qconfig.op_types.items() if entry is not None]
    absent = [name for name in asked if name not in present]
    if not absent:
        return []
    return [f"the qconfig names op types that are not in the model: {listed(absent)}"]
