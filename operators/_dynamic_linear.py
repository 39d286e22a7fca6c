"""Linear layers, quantized dynamically: what MatMul and Gemm with one constant operand share."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.errors import UnsupportedError
from onnxq.operator.nodes import is_constant, shape
from onnxq.operator.readers import is_clipped, readers
from onnxq.operator.site import MICROSOFT
from onnxq.operators import _dynamic
from onnxq.qparams import PerBlock, QParams
from onnxq.qparams.group_spec import is_scrambled
from onnxq.qparams.groups import INT8_ACCURACY, packed_matmul

ALL_PRECISIONS = (op.Precision.DYNAMIC_INT8, op.Precision.WEIGHT_ONLY_GROUPWISE, *_dynamic.STORED)
CLIPS = ("Relu", "Clip")
SMALLEST = np.float32(2.0**-23)  # no scale of weights that are all zeros is larger (observers)


@dataclass(frozen=True, slots=True)
class DynamicLinear:
    """Y = X W or, with W on the left, its transpose: Y^T = X^T W^T.

    Attributes:
        turn_x: swap the last two axes of X before the MatMul.
        turn_y: swap the last two axes of the result.
        op_type: of the float node in WEIGHT_ONLY_GROUPWISE: "Gemm", without C, for two matrices:
            ONNX Runtime makes one Gemm of MatMul and an Add of a matrix, such as a residual, before
            it looks for DequantizeLinear. "MatMul" elsewhere, and before an Add of a vector, which
            becomes the bias of MatMulNBits.
    """

    x: int
    weight: int
    turn_x: bool = False
    turn_y: bool = False
    op_type: str = "MatMul"


def constant_operand(node: ir.Node) -> int | op.Float:
    """Slot of the constant matrix, the right one first, or why there is none to store."""
    slot = next((slot for slot in (1, 0) if is_constant(node, slot)), None)
    if slot is None:
        return op.Float.because(
            "both of its matrices are computed at run time: it has no weights to store"
        )
    value = node.inputs[slot]
    assert value is not None
    assert value.const_value is not None
    if value.const_value.dtype != ir.DataType.FLOAT:
        return op.Float.because(
            f"its weight holds {value.const_value.dtype.name.lower()}; wanted float32"
        )
    if not value.const_value.size:
        return op.Float.because("its weight has no element")
    return slot


def right_rule(
    node: ir.Node, axis: int | None, perm: tuple[int, ...] | None, summed_axis: int = -1
) -> op.DynamicRule:
    """The rule of a constant right operand: a matrix takes all precisions, a scale per column."""
    matrix = len(shape(node, 1) or ()) == 2
    weight = op.DynamicWeight(1, axis if matrix else None, perm)
    precisions = ALL_PRECISIONS if matrix else _dynamic.INTEGERS_OR_STORED
    return op.DynamicRule((weight,), precisions, saturating_pairs=True, not_rows=(summed_axis,))


def left_rule(
    node: ir.Node, axis: int, perm: tuple[int, ...] | None, summed_axis: int = -2
) -> op.DynamicRule:
    """The rule of a constant left operand: a matrix is turned over, if the other's rank is known.

    A weight in float stays where it is, in its own layout.
    """
    matrix, other = len(shape(node, 0) or ()) == 2, shape(node, 1)
    if not (matrix and other):
        return op.DynamicRule((op.DynamicWeight(0, None),), _dynamic.STORED)
    weights = (op.DynamicWeight(0, axis, perm),)
    return op.DynamicRule(weights, ALL_PRECISIONS, saturating_pairs=True, not_rows=(summed_axis,))


def write_linear(site: op.DynamicSite, linear: DynamicLinear) -> ir.Value:
    """float32 X W, dynamic_int8 or weight_only_groupwise; type set, no shape."""
    x, weight = site.inputs[linear.x], site.inputs[linear.weight]
    (qparams,) = site.plan.qparams
    assert x is not None
    assert weight is not None
    assert qparams is not None
    # Gemm's are matrices, whether their shapes are known or not
    rank = 2 if site.node.op_type == "Gemm" else len(shape(site.node, linear.x) or ())
    if site.plan.precision is op.Precision.DYNAMIC_INT8:
        integers, scale, zero_point = _dynamic.quantized_at_run_time(site, "x", x)
        if linear.turn_x:  # behind the quantizer, which other nodes can then share
            integers = turned(site, integers, rank, f"{site.node.name}_x_transpose")
        y = _dynamic.integer_matmul(site, "", (integers, scale, zero_point), weight, qparams)
    else:
        if linear.turn_x:
            x = turned(site, x, rank, f"{site.node.name}_x_transpose")
        y = _blocks(site, x, weight, qparams, linear)
    return turned(site, y, rank, f"{site.node.name}_y_transpose") if linear.turn_y else y


def turned(site: op.NodeSite, x: ir.Value, rank: int, name: str) -> ir.Value:
    """The value with its last two axes swapped."""
    if rank < 2:
        return x
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return site.step("Transpose", [x], name, x.type, {"perm": perm})


def _blocks(
    site: op.NodeSite, x: ir.Value, weight: ir.Value, qparams: QParams, linear: DynamicLinear
) -> ir.Value:
    """DequantizeLinear and the MatMul; MatMulNBits itself where ONNX Runtime would not make it.

    ONNX Runtime 1.31 packs 2-bit weights wrongly when the number of columns is no multiple of 4 (a
    wrong result), moves a Transpose into the MatMul before it looks for DequantizeLinear, takes
    the MatMul for one of integers where X comes from a DequantizeLinear (which fails), and leaves
    it as it is in front of a QuantizeLinear, or of a Relu or Clip with one reader (which is slow).
    Where several MatMul read the weight, it merges the equal DequantizeLinear and then
    dequantizes in every run (32 MatMul with one 512 x 512 weight: 2.5 ms, and 7.7 ms for 4 bits;
    as MatMulNBits 0.27 and 0.29; float 0.41).
    It subtracts zero points, 2^(bits - 1) for signed integers, after it has summed, so that weights
    which are all zeros leave 1e-11 or so; with integers and zero points that are 0 they give 0.
    """
    columns = qparams.scale.shape[-1] if qparams.scale.ndim else 0
    blocked = isinstance(qparams.granularity, PerBlock) and _has_other_reader(site.node, linear)
    turned_alone = linear.turn_x and not linear.turn_y
    if (
        is_scrambled(qparams.dtype.bits, columns)
        or turned_alone
        or blocked
        or _beside_integers(site.node, x)
        or _is_zero(weight, qparams)
        or _is_clipped(site.node)
    ):
        return _packed_linear(site, x, weight, qparams)
    slots = [x, _dynamic.groupwise_reals(site, weight, qparams)]
    return site.step(linear.op_type, slots, f"{site.node.name}_product")


def _is_clipped(node: ir.Node) -> bool:
    """Whether a Relu or Clip follows the MatMul, with or without an Add of its bias."""
    result = node.outputs[0]
    behind = readers(result)
    added = len(behind) == 1 and behind[0].op_type == "Add"
    return is_clipped(result, CLIPS) or (added and is_clipped(behind[0].outputs[0], CLIPS))


def _has_other_reader(node: ir.Node, linear: DynamicLinear) -> bool:
    """Whether another linear layer of this graph reads the float weight too."""
    value = node.inputs[linear.weight]
    readers = [] if value is None else [use.node for use in value.uses()]
    return any(
        other is not node and other.graph is node.graph and other.op_type in ("MatMul", "Gemm")
        for other in readers
    )


def _is_zero(weight: ir.Value, qparams: QParams) -> bool:
    """Whether a group-wise weight is all zeros; read only where its scales allow that."""
    if not isinstance(qparams.granularity, PerBlock) or (qparams.scale > SMALLEST).any():
        return False
    assert weight.const_value is not None, "integers are constants"
    integers = np.asarray(weight.const_value.numpy()).astype(np.int16)
    points = np.repeat(qparams.zero_point.astype(np.int16), qparams.granularity.size, axis=0)
    return np.array_equal(integers, points[: len(integers)])


def _beside_integers(node: ir.Node, x: ir.Value) -> bool:
    """Whether static quantization, written first, put integers before or behind the node."""
    producer = x.producer()
    if producer is not None and producer.op_type == "DequantizeLinear":
        return True
    return any(use.node.op_type == "QuantizeLinear" for use in node.outputs[0].uses())


def _packed_linear(site: op.NodeSite, x: ir.Value, weight: ir.Value, qparams: QParams) -> ir.Value:
    """com.microsoft MatMulNBits on repacked integers."""
    if not isinstance(qparams.granularity, PerBlock):
        raise UnsupportedError(
            f"{site.node.op_type} '{site.node.name}': its weight has {qparams.granularity}; "
            "MatMulNBits wants blocks. Name a block_size in the qconfig."
        )
    assert weight.const_value is not None
    integers, size = weight.const_value.numpy(), qparams.granularity.size
    packed, scale, points = packed_matmul(integers, qparams, size).arrays.values()
    if _is_zero(weight, qparams):
        packed, points = np.zeros_like(packed), np.zeros_like(points)
    stem = str(weight.name).removesuffix("_quantized")
    arrays = {"packed": packed, "block_scale": scale, "block_zero_point": points}
    slots = [site.tape.initializer(ir.Tensor(a), name=f"{stem}_{k}") for k, a in arrays.items()]
    attributes: dict[str, int] = {
        "K": integers.shape[0],
        "N": integers.shape[1],
        "bits": qparams.dtype.bits,
        "block_size": size,
        "accuracy_level": INT8_ACCURACY,
    }
    name = f"{site.node.name}_product"
    y = site.tape.op("MatMulNBits", [x, *slots], attributes, domain=MICROSOFT, name=name)
    y.type = ir.TensorType(ir.DataType.FLOAT)
    return y
