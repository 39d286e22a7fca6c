"""A newer opset for a canonical model, which stays canonical."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.errors import UnsupportedError
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.passes.opset import UpgradeOpset
from onnxq.graph.types import infer_types

if TYPE_CHECKING:
    import onnx_ir as ir


def raise_opset(model: ir.Model, minimum: int) -> bool:
    """Whether opset(ai.onnx) >= minimum now; a model that cannot be raised stays as it is.

    For what is better in a newer opset, but not needed. Names stay unique, constants initializers,
    types known; below opset 18 nodes and values are other objects then.
    """
    if model.opset_imports.get("", 0) >= minimum:
        return True
    try:
        UpgradeOpset(minimum)(model)
    except UnsupportedError:
        return False
    LiftConstants()(model)  # axes that were attributes
    UniqueNames()(model)
    infer_types(model)
    return True
