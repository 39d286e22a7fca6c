"""Types of values in bodies, which neither ONNX Runtime nor other tools write into a file."""

from __future__ import annotations

import onnx_ir as ir

from onnxq.graph.types import infer_types
from onnxq.ort.node_kinds import value_types


def type_bodies(model: ir.Model) -> None:
    """Fills in types of values inside of bodies, in place.

    By onnx's inference; what it does not know (operators of com.microsoft, and all behind them) by
    the facts of ONNX Runtime's operators.

    Args:
        model: names are unique over the whole model.
    """
    infer_types(model)
    for value, dtype in value_types(model).items():
        if value.type is None and value.graph is not model.graph:
            value.type = ir.TensorType(dtype)
