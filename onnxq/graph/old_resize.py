"""Resize and Upsample from before opset 11, which onnx's converter turns into another function.

It leaves the attributes that opset 11 brought at their defaults, coordinates of half pixels; until
then, x_original = x_resized / scale, rounded down where nearest elements were asked for (by ONNX
Runtime: up, where Resize-10 shrinks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.graph.edit import all_nodes, all_values

if TYPE_CHECKING:
    from collections.abc import Iterable

RESIZE, UPSAMPLE = "Resize", "Upsample"
NEW_COORDINATES = 11  # the opset from which on Resize says what its coordinates are
SCALES = 2


def keep_coordinates(nodes: Iterable[ir.Node], original: ir.Model) -> None:
    """Gives each Resize among the converted nodes the attributes that mean what it meant.

    Args:
        nodes: of a model that was converted from below opset 11, changed in place.
        original: the model as it was; tensors have the same names.

    Raises:
        UnsupportedError: nearest elements by scales that no one rounding mode fits.
    """
    producers = {
        value.name: value.producer() for graph in original.graphs() for value in all_values(graph)
    }
    for node in nodes:
        if node.op_type != RESIZE or node.domain:
            continue
        node.attributes["coordinate_transformation_mode"] = ir.AttrString(
            "coordinate_transformation_mode", "asymmetric"
        )
        if node.attributes.get_string("mode", "nearest") == "nearest":
            old = producers.get(node.outputs[0].name)
            grows = old is not None and old.op_type == UPSAMPLE
            rounding = "floor" if grows else _rounding(node)
            node.attributes["nearest_mode"] = ir.AttrString("nearest_mode", rounding)


def _rounding(node: ir.Node) -> str:
    """Rounding mode of a Resize-10, by its scales."""
    value = node.inputs[SCALES]
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    scales = None if tensor is None else tensor.numpy()
    if scales is None or ((scales < 1).any() and (scales > 1).any()):
        found = "computed at run time" if scales is None else str(scales.tolist())
        raise UnsupportedError(
            f"Resize '{node.name}' of opset 10 takes nearest elements by scales {found}: ONNX "
            "Runtime rounds up where it shrinks and down where it grows, which no newer Resize "
            "does. Export the model with opset_version=13."
        )
    return "ceil" if (scales < 1).any() else "floor"


def has_old_resize(model: ir.Model) -> bool:
    """Whether `keep_coordinates` has anything to do after a conversion."""
    return model.opset_imports.get("", 0) < NEW_COORDINATES and any(
        node.op_type in (RESIZE, UPSAMPLE) and not node.domain for node in all_nodes(model)
    )
