"""MatMuls by stored weights, as ONNX Runtime runs them: MatMulNBits with int8 activations.

    W (integers) -> DQ -> MatMul or Gemm    becomes    MatMulNBits, accuracy level 4

That is the form in which ONNX Runtime executes such a MatMul: each block of a row of activations
is rounded to int8. On floats, the result would differ by what that rounding does. Which MatMuls
these are, `groupwise_matmul` says; all others are dequantized, and computed in float.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, new_constant, replace
from onnxq.graph.types import infer_types
from onnxq.graph.weights import constant
from onnxq.operator.nodes import find_input
from onnxq.operator.readers import goes_out, is_clipped, readers
from onnxq.operator.site import MICROSOFT
from onnxq.ort import facts
from onnxq.ort.node_kinds import MATMUL_NBITS
from onnxq.qdq.read import (
    SCALE,
    Unread,
    array_of,
    dequantizer,
    integer_type,
    is_quantize,
    qparams_of,
)
from onnxq.qdq.read import zero_point_of as zero_point_value
from onnxq.qparams import PerBlock, QParams
from onnxq.qparams.groups import INT8_ACCURACY, packed_matmul
from onnxq.targets.speedups import LINEAR_OPS

Integers = npt.NDArray[np.uint8]


def write_groupwise_matmuls(model: ir.Model) -> None:
    """Replaces, in place, what ONNX Runtime would; all graphs."""
    candidates = [node for node in all_nodes(model) if reads_stored_matrix(node)]
    if not candidates:
        return
    infer_types(model)
    names = FreeNames(model)
    # every answer before the first change: a MatMul is what stands in front of the next one
    found = [(node, groupwise_matmul(node)) for node in candidates]
    for node, matmul in found:
        if matmul is not None:
            _replace(model, node, matmul, names)


def _replace(model: ir.Model, node: ir.Node, matmul: GroupwiseMatMul, names: FreeNames) -> None:
    arrays = packed_matmul(matmul.integers.numpy(), matmul.qparams, matmul.block).arrays
    slots = [
        node.inputs[0],
        *(new_constant(node, names.value(f"{node.name}_{n}"), a) for n, a in arrays.items()),
    ]
    if len(node.inputs) > MATRIX and node.inputs[MATRIX] is not None:
        slots += [None, node.inputs[MATRIX]]
    inner, columns = matmul.integers.shape.numpy()
    bits = matmul.integers.dtype.bitwidth
    attributes = {"K": inner, "N": columns, "bits": bits, "block_size": matmul.block}
    made = ir.node(
        MATMUL_NBITS,
        slots,
        attributes | {"accuracy_level": INT8_ACCURACY},
        domain=MICROSOFT,
        name=node.name,
    )
    replace(node, made, names)
    dequantize = matmul.dequantize
    if not dequantize.outputs[0].uses() and isinstance(dequantize.graph, ir.Graph):
        dequantize.graph.remove(dequantize, safe=True)
    model.opset_imports.setdefault(MICROSOFT, 1)


# --- MatMuls by stored weights that ONNX Runtime computes by MatMulNBits: its own rules
#
#     W (integers) -> DQ -> MatMul or Gemm    becomes    MatMulNBits
#
# where, of the MatMul, what stands around it, and the integers, each function below says yes. All
# else is dequantized and multiplied in float. The rules are those of DQMatMulNodeGroupSelector
# (core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc) and of what runs before it:
# MatMulAddFusion, GemmTransposeFusion, and the elimination of equal and of empty nodes. Measured on
# ONNX Runtime 1.31.1 and 1.32.0; `tests/qdq/test_groupwise_matmuls.py` asks the installed one.


MIN_BLOCK = 16
MAX_BLOCK = 256  # unless facts.of(node).packs_beside_16_bits
LOOSE_BLOCK = 32  # session.qdq_matmulnbits_block_size, for weights that have no blocks
WIDTHS = (2, 4, 8)  # bits of integers
MATRIX = 2
TURN = [1, 0]
CLIPS = ("Relu", "Clip")
SIXTEEN_BITS = (ir.DataType.UINT16, ir.DataType.INT16)
VANISHING = ("Identity", "Dropout")
"""Nodes that are taken out before MatMuls are looked at."""

Dims = tuple[int | str | None, ...]
"""Sizes, or their symbols; None where neither is known."""


@dataclass(frozen=True, slots=True)
class GroupwiseMatMul:
    """A MatMul that becomes MatMulNBits.

    Attributes:
        dequantize: the node that reads the integers.
        integers: (inputs, outputs).
        qparams: of the integers: in blocks along axis 0, one per output, or one for all.
        block: inputs that share a scale.
    """

    dequantize: ir.Node
    integers: ir.TensorProtocol
    qparams: QParams
    block: int


def reads_stored_matrix(node: ir.Node) -> bool:
    """Whether it is a MatMul or Gemm whose second operand is dequantized beside it."""
    if node.domain or node.op_type not in LINEAR_OPS or len(node.inputs) < MATRIX:
        return False
    source = dequantizer(node.inputs[1])
    return source is not None and source.graph is node.graph


def groupwise_matmul(node: ir.Node) -> GroupwiseMatMul | None:
    """The MatMulNBits that ONNX Runtime makes of a node; None: it stays as it is."""
    if not reads_stored_matrix(node):
        return None
    source = dequantizer(node.inputs[1])
    assert source is not None, "reads_stored_matrix looked"
    integers = folded(source.inputs[0])
    qparams = qparams_of(source)
    if integers is None or len(integers.shape) != MATRIX or isinstance(qparams, Unread):
        return None
    columns = integers.shape.numpy()[1]
    twin = _has_duplicate(source) or _shares_scale(source)
    reals = source.outputs[0]
    alone = [use.node for use in reals.uses()] == [node] and not (twin or reals.is_graph_output())
    if not alone or not _is_plain(node, columns) or not _gives_floats(node, columns):
        return None
    limit = None if facts.of(node).packs_beside_16_bits else MAX_BLOCK
    block = _block(source, qparams, columns, limit)
    fits = block is not None and integers.dtype.bitwidth in WIDTHS
    return GroupwiseMatMul(source, integers, qparams, block) if fits and block is not None else None


def folded(value: ir.Value | None) -> ir.TensorProtocol | None:
    """A constant, or the transpose of one, which ONNX Runtime computes when it loads the model."""
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type != "Transpose" or producer.domain:
        return constant(value)
    tensor = constant(producer.inputs[0])
    if tensor is None:
        return None
    order = producer.attributes["perm"].as_ints() if "perm" in producer.attributes else None
    return ir.tensor(np.ascontiguousarray(tensor.numpy().transpose(order)), dtype=tensor.dtype)


# --- the integers


def _block(source: ir.Node, qparams: QParams, columns: int, limit: int | None) -> int | None:
    """Inputs that share a scale in MatMulNBits; None: such integers stay."""
    scale, zero = array_of(source, SCALE), zero_point_value(source)
    tensor = constant(zero)
    assert scale is not None, "it has qparams"
    if tensor is not None and tuple(tensor.shape.numpy()) != scale.shape:
        return None
    axis = source.attributes.get_int("axis", 1)
    if isinstance(qparams.granularity, PerBlock):
        size = qparams.granularity.size
        in_range = size >= MIN_BLOCK and (limit is None or size <= limit)
        fits = axis == 0 and in_range and size & (size - 1) == 0
        return size if fits and scale.ndim == MATRIX else None
    of_columns = scale.shape == (columns,) and axis == 1
    return LOOSE_BLOCK if scale.ndim == 0 or of_columns else None


def _has_duplicate(source: ir.Node) -> bool:
    """Whether another DQ of its graph computes the same; ONNX Runtime takes the two for one."""
    integers = source.inputs[0]
    assert integers is not None
    return any(
        reader is not source
        and reader.graph is source.graph
        and reader.op_type == source.op_type
        and [*reader.inputs] == [*source.inputs]
        for reader, _ in integers.uses()
    )


def _shares_scale(source: ir.Node) -> bool:
    """Whether another node reads its scale; equal numbers of rank 0 become one constant."""
    scale, array = source.inputs[SCALE], array_of(source, SCALE)
    assert scale is not None, "it has qparams"
    assert array is not None, "it has qparams"
    if len(scale.uses()) > 1:
        return True
    graph = scale.graph
    return (
        array.ndim == 0
        and isinstance(graph, ir.Graph)
        and any(
            other is not scale and other.dtype == scale.dtype and _equals(other, array)
            for other in graph.initializers.values()
        )
    )


def _equals(other: ir.Value, number: npt.NDArray[np.generic]) -> bool:
    tensor = constant(other)
    if tensor is None or tensor.shape.rank() or not other.uses():
        return False
    return bool(tensor.numpy() == number)


# --- the MatMul


def _is_plain(node: ir.Node, columns: int) -> bool:
    """Whether it computes X W, or X W + bias, with an X that is float to it."""
    x = node.inputs[0]
    source = dequantizer(x)
    if source is not None and not _is_ignored(source, node):
        return False
    if node.op_type != "Gemm":
        return True
    whole = all(node.attributes.get_int(name, 0) == 0 for name in ("transA", "transB"))
    if not whole or node.attributes.get_float("alpha", 1.0) != 1.0 or _is_turned(x):
        return False
    bias = find_input(node, MATRIX)
    if bias is not None:
        return node.attributes.get_float("beta", 1.0) == 1.0 and _dims(bias) == (columns,)
    behind = readers(node.outputs[0], VANISHING)
    return not (len(behind) == 1 and _is_turn(behind[0]))


def _gives_floats(node: ir.Node, columns: int) -> bool:
    """Whether the result, a bias added, is neither quantized nor clipped by its only reader."""
    end = node.outputs[0]
    add = _added(node, columns)
    if add is not None:
        bias = next(value for value in add.inputs if value is not end)
        if bias is None or _dims(bias) != (columns,) or _is_turned(node.inputs[0]):
            return False  # it is a Gemm then, which is not plain
        end = add.outputs[0]
    quantizers = filter(is_quantize, readers(end, VANISHING))
    ignored = all(_is_ignored(quantizer, node) for quantizer in quantizers)
    return ignored and not is_clipped(end, CLIPS, VANISHING)


def _is_ignored(neighbour: ir.Node, node: ir.Node) -> bool:
    """Whether a Q or DQ beside the MatMul does not keep ONNX Runtime from packing it."""
    return facts.of(node).packs_beside_16_bits and integer_type(neighbour) in SIXTEEN_BITS


def _added(node: ir.Node, columns: int) -> ir.Node | None:
    """The Add behind a MatMul of two matrices that ONNX Runtime makes a Gemm of."""
    matmul, x = node.outputs[0], node.inputs[0]
    behind = readers(matmul, VANISHING)
    if node.op_type != "MatMul" or len(behind) != 1 or goes_out(matmul, VANISHING):
        return None
    (add,) = behind
    rows = _dims(x)
    if add.op_type != "Add" or add.domain or matmul not in add.inputs:
        return None
    if rows is None or len(rows) != MATRIX:
        return None  # three axes become two first: what reads the Gemm is a Reshape
    bias = next((value for value in add.inputs if value is not matmul), None)
    sizes = _dims(bias)
    if sizes is None or sizes == (columns,):
        return add if sizes else None
    below = len(sizes) == MATRIX and sizes[0] is not None and sizes[0] == rows[0]
    full = below and sizes[1] in (1, columns)
    taken = _belongs_to(bias, add, node)
    return add if (full or sizes == (1, columns)) and not taken else None


def _belongs_to(other: ir.Value | None, add: ir.Node, node: ir.Node) -> bool:
    """Whether the Add of two MatMuls becomes a part of the other one, which stands later."""
    rival = None if other is None else other.producer()
    if rival is None or rival.op_type != "MatMul" or rival.domain or rival.graph is not node.graph:
        return False
    if readers(rival.outputs[0], VANISHING) != [add] or goes_out(rival.outputs[0], VANISHING):
        return False
    return next(n for n in node.graph or () if n is rival or n is node) is node


# --- what stands around


def _dims(value: ir.Value | None) -> Dims | None:
    """Sizes of a value; None for an unknown rank."""
    tensor = constant(value)
    if tensor is not None:
        return tuple(tensor.shape.numpy())
    if value is None or value.shape is None:
        return None
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


def _is_turned(value: ir.Value | None) -> bool:
    producer = None if value is None else value.producer()
    return producer is not None and _is_turn(producer)


def _is_turn(node: ir.Node) -> bool:
    if node.op_type != "Transpose" or node.domain:
        return False
    return "perm" not in node.attributes or list(node.attributes["perm"].as_ints()) == TURN
