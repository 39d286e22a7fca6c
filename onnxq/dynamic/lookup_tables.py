"""Weights that stay in float, as their integers would hardly shrink the file."""

from collections.abc import Collection, Iterable, Mapping

import onnx_ir as ir

from onnxq.dynamic.reasons import ComputedFromLess, OneNumberPerRow, SavesTooLittle, TableInFloat
from onnxq.graph.folded import given_bytes
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Float
from onnxq.operator.nodes import input_at, tensor_of

LEAST_BYTES = 1024
"""Bytes of a float32 lookup table below which storing it as int8 is not worth an error.

int8 saves three quarters of it; the scales and the Cast, Sub and Mul that dequantize take about
300 bytes of the file.
"""

LOOKUP = "Gather"
"""The operator that takes rows of a lookup table, such as an embedding."""


def kept_in_float(
    node: ir.Node, quantized: Collection[ir.Node], twins: Mapping[ir.Value, ir.Value]
) -> TableInFloat | None:
    """Why a Gather whose precision nobody named stays float; None: it does not.

    Its integers would stand in the file beside the float embedding. They cost nothing where a
    MatMul that is quantized stores them anyway.
    """
    table = node.inputs[0] if node.op_type == LOOKUP else None
    if table is None:
        return None
    tied = [table, *(v for pair in twins.items() if table in pair for v in pair if v is not table)]
    others = [use.node for v in tied for use in v.uses() if use.node.op_type != LOOKUP]
    floats = [other for other in others if other not in quantized]
    if not floats or len(floats) < len(others):
        return None
    return TableInFloat(value_name(table), node_name(floats[0]))


def computed_from_less(weights: Iterable[ir.Value]) -> Float | None:
    """Why a node stays float for the file's size: the file computes a weight from less; or None."""
    for weight in weights:
        given = given_bytes(tensor := tensor_of(weight))
        if given <= tensor.size:
            return Float(ComputedFromLess(value_name(weight), given))
    return None


def too_little_saved(node: ir.Node) -> Float | None:
    """Why a lookup table that is stored alone stays float; None: integers save enough."""
    if node.op_type != LOOKUP:
        return None
    table = tensor_of(input_at(node, 0))
    if len(table.shape) == 1:
        return Float(OneNumberPerRow(str(table.name)))
    return Float(SavesTooLittle(table.nbytes, LEAST_BYTES)) if table.nbytes < LEAST_BYTES else None
