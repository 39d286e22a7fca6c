"""int8 activations, which ONNX Runtime turns into uint8 on x86 (QDQS8ToU8) where it can.

    Q(int8, zero_point) -> DQ     becomes     Q(uint8, zero_point + 128) -> DQ

It does so for a Q that one DQ reads, which one node reads. Elsewhere codes stay int8, and Conv and
MatMul, which it fuses with uint8 activations only, compute in float32. On machines that run int8
activations in integers, such nodes are fused all the same when the model is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq.graph.fuse.scales import is_dequantize, is_quantize
from onnxq.operator import Role, Rule

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from onnxq.operator import NodePlan
    from onnxq.qparams import QParams

INT8_WITHOUT_SHIFT = frozenset({"Gemm"})  # ONNX Runtime's GemmNodeGroupSelector asks nothing


def shifted_codes(model: ir.Model) -> set[ir.Value]:
    """int8 codes that become uint8."""
    return {
        node.outputs[0]
        for node in model.graph.all_nodes()
        if is_quantize(node) and _is_int8(node) and _has_one_reader(node)
    }


def _is_int8(node: ir.Node) -> bool:
    zero_point = node.inputs[2] if len(node.inputs) > 2 else None
    return ir.DataType.INT8 in (
        node.outputs[0].dtype,
        None if zero_point is None else zero_point.dtype,
    )


def _has_one_reader(quantize: ir.Node) -> bool:
    codes = quantize.outputs[0]
    readers = [use.node for use in codes.uses()]
    if len(readers) != 1 or codes.is_graph_output() or not is_dequantize(readers[0]):
        return False
    real = readers[0].outputs[0]
    return len(real.uses()) + real.is_graph_output() == 1


def _type(qparams: QParams | None, value: ir.Value | None, shifted: Collection[ir.Value]) -> str:
    name = "" if qparams is None else qparams.dtype.name
    return "uint8" if value is not None and value in shifted else name


def why_not_fused(
    op_type: str,
    rule: Rule,
    plan: NodePlan,
    codes: Mapping[int, ir.Value | None],
    results: Mapping[int, ir.Value],
    shifted: Collection[ir.Value],
) -> str:
    """Why int8 codes keep ONNX Runtime from fusing a node on x86, or the empty string.

    Args:
        op_type: of the node.
        rule: of the node.
        plan: of the node.
        codes: of its activations, per input slot.
        results: codes that it is to give, per output slot.
        shifted: see `shifted_codes`.
    """
    if rule.role in (Role.MOVEMENT, Role.CLAMP):
        return ""  # exact, whether fused or not
    given = {_type(plan.inputs[slot], value, shifted) for slot, value in codes.items()}
    made = {_type(plan.outputs[slot], value, shifted) for slot, value in results.items()}
    first = _type(plan.inputs[rule.activations[0]], codes[rule.activations[0]], shifted)
    if made - {first} or (rule.role is Role.ELEMENTWISE and len(given) > 1):
        return "some of its int8 codes become uint8 in ONNX Runtime on x86, others do not"
    if rule.role is Role.COMPUTE and first == "int8" and op_type not in INT8_WITHOUT_SHIFT:
        return "ONNX Runtime on x86 computes it in float32, for its int8 input has several readers"
    return ""
