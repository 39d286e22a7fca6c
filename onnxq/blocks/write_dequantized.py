"""Writes weights in blocks for any runtime: DequantizeLinear ahead of the product, opset 21.

    Y = X W    ->    MatMul(X, DequantizeLinear(codes, scales, zero_points; axis, block_size))

Codes have types of their own (uint4, int4 ...), which opset 21 has, and opset 25 of 2 bits. ONNX
Runtime makes MatMulNBits of some of these when it loads the model, at accuracy level 4
(`qdq.block_products` says of which); it dequantizes the others in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.blocks.reasons import MisreadByRuntime
from onnxq.blocks.stored_codes import StoredCodes, drop_if_unread
from onnxq.core.packing import unpacked_rows
from onnxq.graph.edit import FreeNames, graph_of, new_initializer
from onnxq.graph.walk import node_name, value_name
from onnxq.graph.weights import derived
from onnxq.in_blocks.block_codes import CODES, SCALES
from onnxq.in_blocks.block_spec import is_scrambled
from onnxq.operator import Float
from onnxq.operator.nodes import input_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.blocks.plan_weights import InBlocks, WeightPlan
    from onnxq.core.arrays import Array


def misread(plan: WeightPlan) -> dict[str, Float]:
    """Products that ONNX Runtime would compute wrongly in this form, each with the reason."""
    return {
        name: Float(MisreadByRuntime(d.spec.bits, d.outputs))
        for name, d in plan.quantized.items()
        if d.inputs_first and is_scrambled(d.spec.bits, d.outputs)
    }


class DequantizeWriter:
    """Writer of one model's weights; nodes that read one weight in one graph share its codes.

    Args:
        model: changed in place; its opset has to have the types of the codes.
    """

    def __init__(self, model: ir.Model) -> None:
        self._names = FreeNames(model)
        self._stored = StoredCodes()

    def write(
        self, node: ir.Node, tensors: Mapping[str, ir.TensorProtocol], decision: InBlocks
    ) -> None:
        """Lets a node read its weight from codes.

        Args:
            node: MatMul or Gemm of the model.
            tensors: arrays of `PackedBlocks` by their names, in memory or on disk.
            decision: on the node.
        """
        weight = input_at(node, decision.slot)
        attributes = {"axis": 0 if decision.inputs_first else 1, "block_size": decision.spec.block}
        name = self._names.node(f"{node_name(node)}_dequantize")
        graph = graph_of(node)
        stored = self._stored.of(graph, decision, lambda: self._add(graph, tensors, decision))
        made = ir.node("DequantizeLinear", stored, attributes, name=name)
        (reals,) = made.outputs
        reals.name = self._names.value(f"{value_name(weight)}_dequantized")
        reals.type, reals.shape = weight.type, weight.shape
        graph.insert_before(node, made)
        node.replace_input_with(decision.slot, reals)
        drop_if_unread(weight)

    def _add(
        self, graph: ir.Graph, tensors: Mapping[str, ir.TensorProtocol], decision: InBlocks
    ) -> list[ir.Value]:
        """New initializers that hold the codes."""
        return [
            new_initializer(graph, name, _laid_out(kind, tensor, decision, name))
            for kind, tensor in tensors.items()
            for name in (self._names.value(f"{decision.tensor}_{kind}"),)
        ]


def _laid_out(
    kind: str, tensor: ir.TensorProtocol, decision: InBlocks, name: str
) -> ir.TensorProtocol:
    """Codes, scales or zero points in the layout of the float weight; computed when it is read."""
    spec = decision.spec
    width = decision.inputs if kind == CODES else spec.blocks(decision.inputs)
    shape = (decision.outputs, width)
    dtype = ir.DataType.FLOAT if kind == SCALES else ir.DataType[spec.dtype.onnx]

    def compute() -> Array:
        array = np.asarray(tensor.numpy()).reshape(decision.outputs, -1)
        if kind != SCALES:
            array = unpacked_rows(array, spec.bits)[:, :width]
            if spec.symmetric:
                array = (array.astype(np.int16) - spec.middle).astype(np.int8)
        return array.T if decision.inputs_first else array

    return derived(compute, dtype, shape[::-1] if decision.inputs_first else shape, name)
