"""A factor and a summand ahead of nodes with weights disappear into their weights and biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.affine import Affine
from onnxq.graph.edit import all_nodes, bypass
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.origins import set_origins
from onnxq.graph.passes.fold_batch_norm import channels_of, fold_into, has_room
from onnxq.graph.passes.fold_factors import LARGEST, SMALLEST, multiply
from onnxq.graph.passes.formulas import Line, line_of, only_reader
from onnxq.graph.passes.windows import is_padded
from onnxq.graph.weights import constant
from onnxq.operator.nodes import input_at, tensor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_WEIGHT = 1  # slot
_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class FoldFactorsAhead(ir.passes.InPlacePass):
    """W (f x) + b = (f W) x + b for a number f, and W (x + g) + b = W x + (g W 1 + b) for one g.

    W stands for Conv, ConvTranspose, Gemm or MatMul with constant weights; a summand goes into a
    Conv that pads nothing, for the padding is 0 and not g. Where f x + g is read, first

        f x + g = f (x + g / f).

    All graphs, float32 only, and only where all who read the product are such nodes. A weight that
    others read too is left to them. Products and sums are rounded once less than before.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Folds all that match."""
        exchange = ConstantExchange(model)
        modified = False
        for node in all_nodes(model):
            line = line_of(node)
            if line is None or line.x.dtype != ir.DataType.FLOAT:
                continue
            fold = _fold_factor if node.op_type in ("Mul", "Div") else _fold_summand
            modified |= fold(node, line, exchange)
        exchange.share()
        return ir.passes.PassResult(model, modified)


def _fold_factor(node: ir.Node, line: Line, exchange: ConstantExchange) -> bool:
    """Multiplies the weights of all who read f x, or f x + g."""
    if not SMALLEST <= abs(line.factor) <= LARGEST:
        return False
    y = node.outputs[0]
    adder = only_reader(y)
    slot = None if adder is None or adder.op_type != "Add" else _constant_slot(adder)
    readers = _readers(y if adder is None or slot is None else adder.outputs[0])
    if readers is None:
        return False
    factor = np.array(line.factor, np.float32)
    if adder is not None and slot is not None:
        multiply(adder, slot, np.asarray(1 / factor), exchange)
    for reader in readers:
        multiply(reader, _WEIGHT, factor, exchange)
    return _without(node, line.x)


def _fold_summand(node: ir.Node, line: Line, exchange: ConstantExchange) -> bool:
    """Adds g times the sum of each channel's weights to the biases of all who read x + g."""
    readers = _readers(node.outputs[0])
    if readers is None or line.factor != 1.0 or not np.isfinite(line.offset):
        return False
    if any(not _pads_nothing(reader) or not has_room(reader) for reader in readers):
        return False
    for reader in readers:
        weight = tensor_of(input_at(reader, _WEIGHT)).numpy().astype(np.float64)
        summand = line.offset * weight.reshape(channels_of(reader), -1).sum(1)
        affine = Affine(np.ones_like(summand), np.zeros_like(summand), summand)
        fold_into(reader, affine, exchange)
    return _without(node, line.x)


def _without(node: ir.Node, x: ir.Value) -> bool:
    """Takes the node out; who read its result reads x, which is another tensor."""
    set_origins(node.outputs[0], ())
    return bypass(node, _slot_of(node, x))


def _readers(value: ir.Value) -> Sequence[ir.Node] | None:
    """Who reads the value, each a node whose constant weight it is multiplied by; else None."""
    uses = value.uses()
    if value.is_graph_output() or not uses:
        return None
    for use in uses:
        weight = constant(use.node.inputs[_WEIGHT]) if use.node.op_type in _LINEAR else None
        if use.node.domain or use.idx != 0 or weight is None:
            return None
        if weight.dtype != ir.DataType.FLOAT or use.node.graph is not value.graph:
            return None
    return [use.node for use in uses]


def _pads_nothing(node: ir.Node) -> bool:
    return node.op_type == "Conv" and not is_padded(node)


def _constant_slot(node: ir.Node) -> int | None:
    """The slot of an operand that is a float32 constant."""
    for slot in (0, 1):
        tensor = constant(node.inputs[slot])
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT:
            return slot
    return None


def _slot_of(node: ir.Node, value: ir.Value) -> int:
    return 0 if node.inputs[0] is value else 1
