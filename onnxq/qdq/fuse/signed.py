"""int8 activations, which ONNX Runtime turns into uint8 on x86 (its QDQS8ToU8) where it can.

    Q(int8, zero_point) -> DQ     becomes     Q(uint8, zero_point + 128) -> DQ

It does so where a Q has one DQ behind it, and that one reader. Elsewhere integers stay int8, and
Conv and MatMul, which it fuses with uint8 activations only, compute in float32. On ARM, all of them
stay int8, and such nodes run in integers (Int8Activations). tidy/unsigned and
static/insertion/inserted.py stores uint8 from the start, wherever it stands for the same numbers;
here ONNX Runtime's rule holds.
"""

import onnx_ir as ir

from onnxq.dtypes import INT8
from onnxq.graph.edit import FreeNames, home_of, sole_reader
from onnxq.graph.walk import is_read, value_name
from onnxq.graph.weights import constant
from onnxq.operator import NodePlan, OpCategory, Rule
from onnxq.ort import facts
from onnxq.qdq.fuse.scales import Int8Activations
from onnxq.qdq.read import is_dequantize, is_quantize, zero_point_of
from onnxq.qdq.write import shifted_constant


def shift_to_uint8(model: ir.Model, names: FreeNames) -> None:
    """Turns int8 integers into uint8 in place, where ONNX Runtime does; their values stay."""
    shifted: dict[ir.Value, ir.Value] = {}
    for quantize in list(model.graph.all_nodes()):
        dequantize = _only_dequantize(quantize) if is_quantize(quantize) else None
        if dequantize is None:
            continue
        points = [_int8_zero_point(node) for node in (quantize, dequantize)]
        if points[0] is None or points[1] is None or _number(points[0]) != _number(points[1]):
            continue
        for node, value in ((quantize, points[0]), (dequantize, points[1])):
            if value not in shifted:
                shifted[value] = shifted_constant(value, names)
            node.replace_input_with(2, shifted[value])
        quantize.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
    for old, new in shifted.items():
        if is_read(old):
            continue
        name = value_name(old)
        del home_of(old).initializers[name]
        new.name = name


def _only_dequantize(quantize: ir.Node) -> ir.Node | None:
    """The DQ that alone reads the integers, where it has one reader."""
    reader = sole_reader(quantize.outputs[0])
    if not is_dequantize(reader):
        return None
    real = reader.outputs[0]
    return reader if len(real.uses()) + real.is_graph_output() == 1 else None


def _int8_zero_point(node: ir.Node) -> ir.Value | None:
    """The constant int8 zero point of a Q or DQ, one number."""
    value = zero_point_of(node)
    tensor = constant(value)
    if tensor is None or tensor.dtype != ir.DataType.INT8 or tensor.size != 1:
        return None
    return value


def _number(value: ir.Value) -> int:
    assert value.const_value is not None
    return int(value.const_value.numpy().item())


def why_not_fused(op_type: str, rule: Rule, plan: NodePlan, int8: Int8Activations) -> str:
    """Why int8 integers keep ONNX Runtime from fusing a node, or the empty string."""
    if rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP):
        return ""  # exact, whether it is fused or not
    first = plan.inputs[rule.activations[0]]
    assert first is not None, "activations have qparams"
    others = [plan.inputs[slot] for slot in rule.activations]
    if rule.category is OpCategory.COMPUTE:
        others = []  # weights may have either sign
    if any(p is not None and p.dtype != first.dtype for p in [*others, *plan.outputs]):
        return "some of its integers are int8 and others uint8, which ONNX Runtime does not fuse"
    fact = facts.named(op_type)
    refused = int8 is Int8Activations.SHIFTED and not (fact.fuses and fact.takes_int8)
    if rule.category is OpCategory.COMPUTE and first.dtype == INT8 and refused:
        return "its int8 input cannot become uint8: ONNX Runtime on x86 computes it in float32"
    return ""
