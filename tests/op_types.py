"""Operators of a model, which tests of rewrites compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def op_types(model: ir.Model) -> list[str]:
    """Op types of the main graph, in the order of its nodes."""
    return [node.op_type for node in model.graph]
