"""MatMul with an Add of a bias behind it, fused as the Gemm that ONNX Runtime makes of them.

The Gemm is fused where a QuantizeLinear follows; else it computes in float32, although MatMul alone
would have been fused. onnxq.ort.matmul_add has the conditions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq import catalog
from onnxq.operator import Float
from onnxq.operator.nodes import input_at
from onnxq.ort.matmul_add import biased_product
from onnxq.qdq.fuse.fusion import Flattened, Fusion, Kept
from onnxq.qdq.fuse.judge import site
from onnxq.qdq.fuse.view import float_view, view_of
from onnxq.qdq.read import from_dequantize

if TYPE_CHECKING:
    from onnxq.qdq.fuse.scales import Scales


def judge_biased(node: ir.Node, scales: Scales) -> Fusion | Kept | None:
    """Verdict on a MatMul with a bias; None where the node is none."""
    found = biased_product(node)
    if found is None or not found.becomes_gemm:
        return None
    if not all(v is not None and from_dequantize(v, node) for v in node.inputs):
        return None
    add, bias_slot = found.add, found.slot
    a, b, bias = input_at(node, 0), input_at(node, 1), found.bias
    gemm = catalog.find("Gemm")
    assert gemm is not None, "operators/gemm.py"
    seen, seen_bias = float_view(node, scales), float_view(add, scales).inputs[bias_slot]
    view = view_of(add, "Gemm", [*(_moved(v) for v in seen.inputs), _moved(seen_bias)])
    view.name = node.name
    flattened = _flattened(a, b) if found.is_flattened else None
    if flattened is not None:
        input_at(view, 0).shape = ir.Shape(flattened.matrix)
        view.outputs[0].shape = ir.Shape([flattened.matrix[0], flattened.result[-1]])
    rule = gemm.fused_rule(view)
    if isinstance(rule, Float):
        return Kept(rule.reason.words)
    made = site(node, add, [a, b, bias], gemm, view, rule, scales)
    if isinstance(made, Kept):
        return Kept(f"with the Add behind it, ONNX Runtime makes a Gemm of it: {made.reason}")
    if flattened is not None and made.absorbed:
        if made.new_bias is not None:
            return Kept(
                "with the Add behind it, ONNX Runtime makes a Gemm of it, which it does not fuse "
                f"with {made.absorbed[0].op_type} behind a Reshape"
            )
        made.give_floats()  # its bias is int32: no Q is needed
    made.flattened = flattened
    made.absorbed.append(add)
    return made


def _moved(value: ir.Value | None) -> ir.Value | None:
    """The value for another view: views share nothing."""
    if value is None:
        return None
    return ir.Value(
        name=value.name, type=value.type, shape=value.shape, const_value=value.const_value
    )


def _flattened(a: ir.Value, b: ir.Value) -> Flattened:
    """The shapes around the Gemm, where A is no matrix."""
    assert a.shape is not None
    assert b.shape is not None
    *batches, inner, columns = (int(size) for size in (*a.shape, b.shape[1]))
    return Flattened((math.prod(batches), inner), (*batches, columns))
