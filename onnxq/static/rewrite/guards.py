"""Which nodes that are to stay float ONNX Runtime would quantize by itself.

DQ -> op -> Q                   becomes QLinearOp, or op on codes
DQ -> Reshape -> op -> Q        too: a DQ moves down through what only moves data
DQ -> op -> Relu -> Q           too: a Q moves up, and takes Relu and Clip in
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxq import catalog
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Role, Rule
from onnxq.qdq.read import dequantizer

if TYPE_CHECKING:
    from onnxq.static.plan import Plan

# Measured on ONNX Runtime 1.31: DQ -> op -> Q keeps its three nodes, whether the qparams on both
# sides are equal or not. What is not here gets a guard, which costs one copy of its input.
NEVER_FUSED = frozenset(
    [
        "Abs",
        "Ceil",
        "Celu",
        "Clip",
        "Cos",
        "CumSum",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "GlobalLpPool",
        "GlobalMaxPool",
        "GridSample",
        "GroupNormalization",
        "HardSigmoid",
        "HardSwish",
        "Hardmax",
        "InstanceNormalization",
        "LRN",
        "LayerNormalization",
        "Log",
        "LogSoftmax",
        "LpNormalization",
        "LpPool",
        "Max",
        "Mean",
        "MeanVarianceNormalization",
        "Min",
        "Mish",
        "Mod",
        "Neg",
        "PRelu",
        "Pad",
        "Pow",
        "RMSNormalization",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceMean",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Relu",
        "Round",
        "Selu",
        "Sign",
        "Sin",
        "Softplus",
        "Softsign",
        "SpaceToDepth",
        "Sqrt",
        "Sub",
        "Sum",
        "Tanh",
        "ThresholdedRelu",
        "Trilu",
    ]
)
# What ONNX Runtime moves Q and DQ past, or removes before it looks for them.
TRANSPARENT = frozenset(
    {
        "Dropout",
        "Expand",
        "Flatten",
        "Identity",
        "MaxPool",
        "Reshape",
        "Slice",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
ABSORBED = TRANSPARENT | {"Clip", "Relu"}  # a Q swallows these, where its codes saturate alike


def inputs_to_guard(node: ir.Node, plan: Plan) -> tuple[int, ...]:
    """Input slots of a float node, of which one needs a guard; empty where none is needed.

    Args:
        node: to stay float; its inputs are already those of the integer model.
        plan: tells which of its results, or of what follows, are quantized.
    """
    if node.domain == "" and node.op_type in NEVER_FUSED:
        return ()
    varying = [
        (slot, value)
        for slot, value in enumerate(node.inputs)
        if value is not None
        and not value.is_initializer()
        and value.dtype in (None, ir.DataType.FLOAT)  # a Where has a condition, too
    ]
    if not varying or not all(_dequantized(value) for _, value in varying):
        return ()
    if _fuses_without_q(node, len(varying)) or any(_quantized(v, plan) for v in node.outputs):
        return tuple(slot for slot, _ in varying)
    return ()


def moves_data(node: ir.Node) -> bool:
    """Whether ONNX Runtime may move a Q ahead of the node, so that it needs a guard behind too."""
    operator = catalog.find(node.op_type, node.domain)
    rule = None if operator is None else operator.rule(node)
    moved = isinstance(rule, Rule) and rule.role is Role.MOVEMENT
    return moved or node.op_type in TRANSPARENT


def slow_on_codes(node: ir.Node) -> bool:
    """Whether a Q that ONNX Runtime moves ahead of the node would cost time: it needs a guard.

    A MaxPool behind a float Conv takes 20 times as long on codes, where it is not channels last.
    """
    return node.domain == "" and node.op_type == "MaxPool"


def _fuses_without_q(node: ir.Node, activations: int) -> bool:
    """MatMul of two activations does; what has no rule but an operator file may."""
    operator = catalog.find(node.op_type, node.domain)
    if operator is None or activations == 1:
        return False
    rule = operator.rule(node)
    return not isinstance(rule, Rule) or not rule.needs_output


def _dequantized(value: ir.Value) -> bool:
    """Whether a DQ makes the value, or could be moved down to it."""
    producer = value.producer()
    while producer is not None and producer.op_type in TRANSPARENT:
        above = producer.inputs[0]
        if above is None:
            return False
        value, producer = above, above.producer()
    return dequantizer(value) is not None


def _quantized(value: ir.Value, plan: Plan) -> bool:
    """Whether a Q stands behind the value, or could be moved up to it."""
    if value.name and value_name(value) in plan.tensors:
        return True
    below = [
        n for n in value.consumers() if n.op_type in ABSORBED and node_name(n) in plan.decisions
    ]
    return any(_quantized(n.outputs[0], plan) for n in below)
