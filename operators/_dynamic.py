"""Writes dynamic quantization: activations quantized at run time, MatMul of integers.

The MatMul of integers is written in operators of ai.onnx alone,

    DynamicQuantizeLinear -> MatMulInteger -> Cast -> Mul (by x_scale * w_scale) [-> Add]

which ONNX Runtime fuses to DynamicQuantizeMatMul, or MatMulIntegerToFloat where several nodes read
the same integers. Both compute float32(sum) * (x_scale * w_scale[n]) + bias[n], rounded after each
step, as the unfused operators do: equal bit for bit, fused or not.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.operator import Array, DynamicRule, DynamicSite, Float, NodeSite, Precision
from onnxq.qparams import PerBlock, PerChannel, PerTensor, QParams

STORED = (Precision.WEIGHT_ONLY, Precision.WEIGHT_ONLY_FLOAT16)
"""Precisions that `lower_stored` writes."""
INTEGERS_OR_STORED = (Precision.DYNAMIC_INT8, *STORED)

RunTimeIntegers = tuple[ir.Value, ir.Value, ir.Value]
"""(integers, scale, zero point) of a tensor that is quantized when the model runs."""


def quantized_at_run_time(site: NodeSite, label: str, x: ir.Value) -> RunTimeIntegers:
    """(integers, scale, zero point) of a float tensor: DynamicQuantizeLinear, uint8."""
    name = f"{site.node.name}_{label}_quantize"
    integers, scale, zero_point = site.tape.op_multi_out(
        "DynamicQuantizeLinear", [x], num_outputs=3, name=name
    )
    integers.type, integers.shape = ir.TensorType(ir.DataType.UINT8), x.shape
    scale.type, scale.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(())
    zero_point.type, zero_point.shape = ir.TensorType(ir.DataType.UINT8), ir.Shape(())
    return integers, scale, zero_point


def parameters_of(site: NodeSite, integers: ir.Value, qparams: QParams) -> list[ir.Value]:
    """Initializers `<weight>_scale` and, unless it is 0, `<weight>_zero_point`."""
    stem = str(integers.name).removesuffix("_quantized")
    found = [site.tape.initializer(ir.tensor(qparams.scale), name=f"{stem}_scale")]
    if qparams.zero_point.any():
        points = ir.tensor(qparams.zero_point, dtype=ir.DataType[qparams.dtype.onnx])
        found.append(site.tape.initializer(points, name=f"{stem}_zero_point"))
    return found


def integer_matmul(
    site: NodeSite, label: str, x: RunTimeIntegers, weight: ir.Value, qparams: QParams
) -> ir.Value:
    """float32 MatMul of activations (..., K) quantized at run time and a quantized weight (K, N).

    float32(sum (x - x_zp) (w - w_zp[n])) * (x_scale * w_scale[n]); the value has a type, no shape.

    Args:
        site: gives names.
        label: tells this MatMul from the node's others; empty where it is the only one.
        x: as `quantized_at_run_time` gives it.
        weight: integers, as np.matmul takes its right operand.
        qparams: of the weight, per tensor or per column (the last axis).
    """
    check_integer(site.node, weight, qparams)
    stem = f"{site.node.name}_{label}" if label else str(site.node.name)
    scale, *zero_point = parameters_of(site, weight, qparams)
    integers, x_scale, x_zero_point = x
    slots = [integers, weight, x_zero_point, *zero_point]
    total = site.step("MatMulInteger", slots, f"{stem}_sum", ir.TensorType(ir.DataType.INT32))
    to_float = {"to": int(ir.DataType.FLOAT)}
    reals = site.step("Cast", [total], f"{stem}_cast", attributes=to_float)
    factor = site.step("Mul", [x_scale, scale], f"{stem}_scales")
    factor.shape = ir.Shape(qparams.scale.shape)
    return site.step("Mul", [reals, factor], f"{stem}_multiply")


def check_integer(node: ir.Node, weight: ir.Value, qparams: QParams) -> None:
    """Raises UnsupportedError for a weight (..., K, N) that MatMulInteger does not take."""
    where = f"{node.op_type} '{node.name}'"
    if qparams.dtype.onnx not in {"INT8", "UINT8"}:
        raise UnsupportedError(
            f"{where}: ONNX Runtime has no integer MatMul with {qparams.dtype} weights; "
            "choose int8, or the precision 'weight_only_groupwise', which computes in float."
        )
    rank = None if weight.shape is None else len(weight.shape)
    last = isinstance(qparams.granularity, PerChannel) and qparams.granularity.axis in (
        -1,
        -1 if rank is None else rank - 1,
    )
    if not (isinstance(qparams.granularity, PerTensor) or last):
        raise UnsupportedError(
            f"{where}: ONNX Runtime has no integer MatMul of weights with {qparams.granularity}; "
            "choose one scale per column or for the tensor, or precision 'weight_only_groupwise'."
        )


def stored_reals(site: NodeSite, integers: ir.Value, qparams: QParams | None) -> ir.Value:
    """Dequantizes a stored weight when a session is made; qparams None: a weight in float16.

    (float32(integers) - zero_point) * scale, as DequantizeLinear does. But ONNX Runtime folds Cast,
    Sub and Mul of constants, and DequantizeLinear not (or makes it part of MatMulNBits).
    """
    stem = str(integers.name).removesuffix("_quantized")
    name = f"{site.node.name}_{stem}"
    to_float = {"to": int(ir.DataType.FLOAT)}
    reals = site.step("Cast", [integers], f"{name}_cast", attributes=to_float)
    if qparams is not None:
        rank = 0 if integers.shape is None else len(integers.shape)
        if qparams.zero_point.any():
            points = qparams.zero_point.astype(np.float32)  # whole numbers below 2^17: exact
            slots = [reals, expanded(site, integers, f"{stem}_zero_point", points, qparams, rank)]
            reals = site.step("Sub", slots, f"{name}_centre")
        slots = [reals, expanded(site, integers, f"{stem}_scale", qparams.scale, qparams, rank)]
        reals = site.step("Mul", slots, f"{name}_dequantize")
    reals.shape = integers.shape
    return reals


def expanded(
    site: NodeSite, integers: ir.Value, name: str, values: Array, qparams: QParams, rank: int
) -> ir.Value:
    """Scales or zero points in a shape that broadcasts with the weight; of groups: by a Gather."""
    granularity = qparams.granularity
    if isinstance(granularity, PerTensor):
        return site.tape.initializer(ir.tensor(values), name=name)
    axis = granularity.axis % rank
    if isinstance(granularity, PerChannel):
        column = values.reshape([-1 if i == axis else 1 for i in range(rank)])
        return site.tape.initializer(ir.tensor(column), name=name)
    assert integers.const_value is not None, "integers are constants"
    length = integers.const_value.shape.numpy()[axis]
    places = np.arange(length, dtype=np.int64) // granularity.size
    slots = [
        site.tape.initializer(ir.tensor(values), name=name),
        site.tape.initializer(ir.tensor(places), name=f"{name}_block"),
    ]
    return site.step("Gather", slots, f"{name}_spread", attributes={"axis": axis})


def groupwise_reals(site: NodeSite, integers: ir.Value, qparams: QParams) -> ir.Value:
    """Dequantizes a weight (K, N) by DequantizeLinear, which ONNX Runtime makes MatMulNBits of.

    Opset 21; 25 for 2 bits. Groups of 16, 32 .. 256 elements along axis 0, the last one may be
    short; with one scale per column or tensor, ONNX Runtime makes groups of 32 itself.
    """
    stem = str(integers.name).removesuffix("_quantized")
    slots = [integers, *parameters_of(site, integers, qparams)]
    attributes: dict[str, ir.Attr | int | Sequence[int]] = {}
    if isinstance(qparams.granularity, PerBlock):
        attributes = {"axis": qparams.granularity.axis, "block_size": qparams.granularity.size}
    elif isinstance(qparams.granularity, PerChannel):
        attributes = {"axis": qparams.granularity.axis}
    name = f"{site.node.name}_{stem}_dequantize"
    reals = site.step("DequantizeLinear", slots, name, attributes=attributes)
    reals.shape = integers.shape
    return reals


def lower_stored(site: DynamicSite, rule: DynamicRule | Float) -> list[ir.Value]:
    """The float node itself, on stored weights that are dequantized when a session is made.

    Integers or float16; a Transpose gives the weight the order of axes that the float node reads.
    """
    assert isinstance(rule, DynamicRule), "the plan holds nodes that have a rule"
    slots = list(site.inputs)
    for weight, qparams in zip(rule.weights, site.plan.qparams, strict=True):
        integers = slots[weight.slot]
        if integers is None:
            continue
        reals = stored_reals(site, integers, qparams)
        if weight.perm is not None:
            back = {"perm": [int(axis) for axis in np.argsort(weight.perm)]}
            name = f"{site.node.name}_{weight.slot}_transpose"
            reals = site.step("Transpose", [reals], name, attributes=back)
            float_weight = site.node.inputs[weight.slot]
            reals.shape = None if float_weight is None else float_weight.shape
        slots[weight.slot] = reals
    return site.float_node(slots)
