"""Products and sums with constants behind a node with weights disappear into weight and bias."""

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Reals
from onnxq.graph.affine import Affine
from onnxq.graph.edit import all_nodes, bypass
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.folded import note_factor
from onnxq.graph.origins import move
from onnxq.graph.passes.fold_batch_norm import channels_of, fold_into, foldable_producer
from onnxq.graph.passes.formulas import only_reader, producer_of
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import input_at, tensor_of

SATURATION_MODE = ("Add", "Sub", "Mul", "Div")
SMALLEST, LARGEST = 2.0**-60, 2.0**60
"""Factors that leave float32 weights as exact as they were."""


class FoldFactors(ir.passes.InPlacePass):
    """(W x + b) f + g = (f W) x + (f b + g), for constants f and g, one number or one per channel.

    W x + b is a Conv, a ConvTranspose or a Gemm with constants. Of MatMul, (x W) f = x (W f) and
    (x W + b) f = x (W f) + b f, f varying along the columns at most; b stays an Add.

    All graphs, float32 only, and only where nothing else reads what is multiplied. A weight that
    others read too is left to them. The result keeps its name. Products and sums are rounded once
    less than before.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Folds all that match, those behind one another too."""
        exchange = ConstantExchange(model)
        for node in all_nodes(model):
            operation = _operation(node)
            if operation is not None and _fold(operation, exchange):
                name = node.outputs[0].name
                move(node.outputs[0], operation.x)
                bypass(node, operation.slot)
                operation.x.name = name
        exchange.share()
        return ir.passes.PassResult(model, exchange.modified)


@dataclass(frozen=True, slots=True)
class _Operation:
    """A node that adds a constant to x or multiplies x by one; x stands in the slot."""

    node: ir.Node
    x: ir.Value
    slot: int
    operand: ir.TensorProtocol

    @property
    def is_product(self) -> bool:
        """Whether it leaves 0 where x is 0."""
        return self.node.op_type in ("Mul", "Div")

    def along(self, axis: int, size: int) -> Reals | None:
        """The constant as float64 (size,), where it varies along that axis of x at most."""
        assert self.x.shape is not None
        rank, shape = len(self.x.shape), tuple(self.operand.shape.numpy())
        padded = (*[1] * (rank - len(shape)), *shape)
        wide = [i for i, n in enumerate(padded) if n != 1]
        if len(padded) != rank or wide not in ([], [axis % rank]) or self.operand.size > size:
            return None
        array = self.operand.numpy().reshape(-1).astype(np.float64)
        return np.broadcast_to(array, size) if array.size in (1, size) else None

    def affine(self, constant: Reals) -> Affine | None:
        """The function of each channel; None: it has no finite inverse, or rounds."""
        ones, zeros = np.ones_like(constant), np.zeros_like(constant)
        with np.errstate(divide="ignore"):
            factor = {"Mul": constant, "Div": 1 / constant}.get(self.node.op_type, ones)
        beta = {"Add": constant, "Sub": -constant}.get(self.node.op_type, zeros)
        if self.node.op_type == "Sub" and self.slot == 1:
            factor, beta = -ones, constant
        size = np.abs(factor)
        if not ((size >= SMALLEST) & (size <= LARGEST) & np.isfinite(beta)).all():
            return None
        return Affine(factor, zeros, beta)


def _operation(node: ir.Node) -> _Operation | None:
    if node.domain or node.op_type not in SATURATION_MODE:
        return None
    for slot in (0, 1):
        x, operand = node.inputs[slot], constant(node.inputs[1 - slot])
        if x is None or operand is None or x.shape is None or x.dtype != ir.DataType.FLOAT:
            continue
        if operand.dtype != ir.DataType.FLOAT or (node.op_type == "Div" and slot == 1):
            continue
        return _Operation(node, x, slot, operand)
    return None


def _fold(operation: _Operation, exchange: ConstantExchange) -> bool:
    """Folds the operation into what computes x; False where that has no room for it."""
    producer = foldable_producer(operation.node, operation.x)
    if producer is None:
        return operation.is_product and _fold_into_matmul(operation, exchange)
    found = operation.along(1, channels_of(producer))
    affine = None if found is None else operation.affine(found)
    if affine is None:
        return False
    fold_into(producer, affine, exchange)
    return True


def _fold_into_matmul(operation: _Operation, exchange: ConstantExchange) -> bool:
    """Multiplies the columns of a MatMul's weight, and the bias that is added behind it."""
    adder = producer_of(operation.x)
    bias = None
    if adder is None or only_reader(operation.x) is not operation.node:
        return False
    matmul = adder
    if adder.op_type == "Add":
        bias = next((slot for slot in (0, 1) if constant(adder.inputs[slot]) is not None), None)
        behind = None if bias is None else adder.inputs[1 - bias]
        found = producer_of(behind)
        if behind is None or found is None or only_reader(behind) is not adder:
            return False
        matmul = found
    weight = constant(matmul.inputs[1]) if matmul.op_type == "MatMul" else None
    if weight is None or weight.dtype != ir.DataType.FLOAT or len(weight.shape) != 2:
        return False
    columns = weight.shape.numpy()[1]
    if bias is not None:
        row = tensor_of(input_at(adder, bias))
        if row.dtype != ir.DataType.FLOAT or row.shape.numpy() not in ((), (1,), (columns,)):
            return False
    found_factor = operation.along(-1, columns)
    affine = None if found_factor is None else operation.affine(found_factor)
    if affine is None:
        return False
    factor = affine.factor.astype(np.float32)
    multiply(matmul, 1, factor, exchange)
    if bias is not None:
        multiply(adder, bias, factor, exchange)
    return True


def multiply(
    node: ir.Node,
    slot: int,
    factor: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    exchange: ConstantExchange,
) -> None:
    """Puts constant * factor into the constant's slot, as wide as the two are together."""
    value = input_at(node, slot)
    tensor = tensor_of(value)
    shape = np.broadcast_shapes(tensor.shape.numpy(), factor.shape)
    scaled = derived(lambda: tensor.numpy() * factor, ir.DataType.FLOAT, shape)
    scaled = note_factor(tensor, factor, scaled)
    exchange.put(node, slot, scaled, f"{value.name}_scaled", ("columns", factor.tobytes()))
