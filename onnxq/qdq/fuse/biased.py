"""MatMul with an Add of a bias behind it, which ONNX Runtime turns into a Gemm before it fuses.

    Y = A B + C     becomes     Reshape -> Gemm(A, B, C) -> Reshape, where A is no matrix

ONNX Runtime's MatMulAddFusion, on these terms: B is a matrix, C a vector with one number per column
of B; A is a matrix, or all its sizes are known. The Gemm is fused where a QuantizeLinear follows;
else it computes in float32, although MatMul alone would have been fused.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq import catalog
from onnxq.operator import Float
from onnxq.operator.nodes import input_at
from onnxq.qdq.fuse.fusion import Flattened, Fusion, Kept
from onnxq.qdq.fuse.judge import site
from onnxq.qdq.fuse.view import float_view, view_of
from onnxq.qdq.read import from_dequantize

if TYPE_CHECKING:
    from onnxq.qdq.fuse.scales import Scales

MATRIX = 2


def judge_biased(node: ir.Node, scales: Scales) -> Fusion | Kept | None:
    """Verdict on a MatMul with a bias; None where the node is none."""
    if node.op_type != "MatMul" or node.domain:
        return None
    if not all(v is not None and from_dequantize(v, node) for v in node.inputs):
        return None
    add = _add_behind(node)
    if add is None:
        return None
    bias_slot = 1 if add.inputs[0] is node.outputs[0] else 0
    a, b, bias = input_at(node, 0), input_at(node, 1), add.inputs[bias_slot]
    if bias is None or not _becomes_gemm(a, b, bias):
        return None
    gemm = catalog.find("Gemm")
    assert gemm is not None, "operators/gemm.py"
    seen, seen_bias = float_view(node, scales), float_view(add, scales).inputs[bias_slot]
    view = view_of(add, "Gemm", [*(_moved(v) for v in seen.inputs), _moved(seen_bias)])
    view.name = node.name
    flattened = _flattened(a, b)
    if flattened is not None:
        input_at(view, 0).shape = ir.Shape(flattened.matrix)
        view.outputs[0].shape = ir.Shape([flattened.matrix[0], flattened.result[-1]])
    rule = gemm.rule(view)
    if isinstance(rule, Float):
        return Kept(rule.reason)
    found = site(node, add, [a, b, bias], gemm, view, rule, scales)
    if isinstance(found, Kept):
        return Kept(f"with the Add behind it, ONNX Runtime makes a Gemm of it: {found.reason}")
    if not found.quantizers:
        return Kept("with the Add behind it, ONNX Runtime makes a float Gemm of it")
    if flattened is not None and found.absorbed:
        return Kept(
            "with the Add behind it, ONNX Runtime makes a Gemm of it, which it does not fuse "
            f"with {found.absorbed[0].op_type} behind a Reshape"
        )
    found.flattened = flattened
    found.absorbed.append(add)
    return found


def _moved(value: ir.Value | None) -> ir.Value | None:
    """The value for another view: views share nothing."""
    if value is None:
        return None
    return ir.Value(
        name=value.name, type=value.type, shape=value.shape, const_value=value.const_value
    )


def _add_behind(node: ir.Node) -> ir.Node | None:
    """The Add that alone reads the product."""
    product = node.outputs[0]
    uses = product.uses()
    if len(uses) != 1 or product.is_graph_output():
        return None
    (reader,) = (use.node for use in uses)
    is_add = reader.op_type == "Add" and not reader.domain and reader.graph is node.graph
    return reader if is_add else None


def _becomes_gemm(a: ir.Value, b: ir.Value, bias: ir.Value) -> bool:
    """ONNX Runtime's conditions on the shapes."""
    if a.shape is None or b.shape is None or bias.shape is None or len(b.shape) != MATRIX:
        return False
    columns = b.shape[1]
    if len(a.shape) == MATRIX:
        rows = a.shape[0]
        wanted: list[tuple[object, ...]] = [(columns,), (1, columns), (rows, 1), (rows, columns)]
        return tuple(bias.shape) in wanted
    static = all(isinstance(size, int) for size in (*a.shape, *b.shape))
    return static and tuple(bias.shape) == (columns,)


def _flattened(a: ir.Value, b: ir.Value) -> Flattened | None:
    """The shapes around the Gemm; None where A is a matrix."""
    assert a.shape is not None
    assert b.shape is not None
    if len(a.shape) == MATRIX:
        return None
    *batches, inner, columns = (int(size) for size in (*a.shape, b.shape[1]))
    return Flattened((math.prod(batches), inner), (*batches, columns))
