"""Carries out a plan of weights in groups: each product reads its integers, and no float weight.

`GroupwiseWriter` writes com.microsoft MatMulNBits; `DequantizeWriter` is for any runtime:
DequantizeLinear ahead of the product, opset 21.

    Y = X W    ->    MatMul(X, DequantizeLinear(integers, scales, zero_points; axis, block_size))

Integers have types of their own (uint4, int4 ...), which opset 21 has, and opset 25 of 2 bits. ONNX
Runtime makes MatMulNBits of some of these when it loads the model, at accuracy level 4
(`qdq.block_products` says of which); it dequantizes the others in every run.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.core.collector import without_collector
from onnxq.core.packing import unpacked_rows
from onnxq.dynamic.tied_integers import float_matrices, store_tied_integers_once
from onnxq.graph.canonical import upgrade_opset
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.edit import FreeNames, graph_of, new_initializer
from onnxq.graph.folded import write_as_given
from onnxq.graph.hashing import model_hash
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.graph.weights import derived
from onnxq.operator import Float
from onnxq.operator.nodes import input_at
from onnxq.qdq.compact import compact, names_in
from onnxq.qparams.group_spec import is_scrambled
from onnxq.qparams.groups import INTEGERS, SCALES
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.weights.reasons import MisreadByRuntime, ReadByMicrosoftAlone
from onnxq.weights.write_products import GroupwiseWriter, StoredIntegers, drop_if_unread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.weights.plan_weights import Groupwise, WeightPlan


def misread(plan: WeightPlan) -> dict[str, Float]:
    """Nodes that this format has nothing for, or that ONNX Runtime would compute wrongly."""
    floats = {n: Float(ReadByMicrosoftAlone()) for n, d in plan.nodes.items() if d.is_foreign}
    return floats | {
        name: Float(MisreadByRuntime(d.spec.bits, d.outputs))
        for name, d in plan.quantized.items()
        if d.inputs_first and is_scrambled(d.spec.bits, d.outputs)
    }


class DequantizeWriter:
    """Writer of one model's weights; nodes that read one weight in one graph share its integers.

    Args:
        model: changed in place; its opset has to have the types of the integers.
    """

    def __init__(self, model: ir.Model) -> None:
        self._names = FreeNames(model)
        self._stored = StoredIntegers()

    def write(
        self, node: ir.Node, tensors: Mapping[str, ir.TensorProtocol], decision: Groupwise
    ) -> None:
        """Lets a node read its weight from integers.

        Args:
            node: MatMul or Gemm of the model.
            tensors: arrays of `PackedGroups` by their names, in memory or on disk.
            decision: on the node.
        """
        weight = input_at(node, decision.slot)
        attributes = {
            "axis": 0 if decision.inputs_first else 1,
            "block_size": decision.spec.group_size,
        }
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
        self, graph: ir.Graph, tensors: Mapping[str, ir.TensorProtocol], decision: Groupwise
    ) -> list[ir.Value]:
        """New initializers that hold the integers."""
        return [
            new_initializer(graph, name, _laid_out(kind, tensor, decision, name))
            for kind, tensor in tensors.items()
            for name in (self._names.value(f"{decision.tensor}_{kind}"),)
        ]


def _laid_out(
    kind: str, tensor: ir.TensorProtocol, decision: Groupwise, name: str
) -> ir.TensorProtocol:
    """Integers, scales or zero points in the layout of the float weight.

    Computed when it is read.
    """
    spec = decision.spec
    width = decision.inputs if kind == INTEGERS else spec.groups(decision.inputs)
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


class WeightFormat(enum.Enum):
    """How products of blocks are written."""

    MATMULNBITS = "matmulnbits"
    """com.microsoft MatMulNBits."""
    QDQ = "qdq"
    """DequantizeLinear ahead of the float product, in operators of ai.onnx alone: opset 21."""


FORMAT = "dynamic"
"""Weights alone are quantized, and activations, where they are, when the model runs."""


BLOCKS_OPSET = 21
"""First opset whose DequantizeLinear has blocks."""


@without_collector()
def write_weights(
    model: ir.Model,
    plan: WeightPlan,
    integers: Mapping[str, Mapping[str, ir.TensorProtocol]],
    accuracy: int,
    format: WeightFormat = WeightFormat.MATMULNBITS,
) -> QuantizedModel:
    """The model with weights in groups; the float model stays as it is and shares what it can.

    Args:
        model: the canonical float model that the plan was made of.
        plan: which products, and in which format.
        integers: product -> arrays of `PackedGroups` by name, in memory or on disk.
        accuracy: accuracy_level of MatMulNBits.
        format: how products are written.
    """
    written = model.clone()
    writer: GroupwiseWriter | DequantizeWriter
    if format is WeightFormat.QDQ:
        needed = max((d.spec.dtype.min_opset for d in plan.quantized.values()), default=0)
        upgrade_opset(written, max(needed, BLOCKS_OPSET))
        writer = DequantizeWriter(written)
    else:
        writer = GroupwiseWriter(written, accuracy)
    for node, _ in list(walk(written.graph)):
        decision = plan.quantized.get(node_name(node))
        if decision is not None:
            writer.write(node, integers[node_name(node)], decision)
        elif node_name(node) in plan.mixtures and isinstance(writer, GroupwiseWriter):
            writer.write_mixture(node, integers, plan.quantized)
    write_as_given(written)
    store_tied_integers_once(float_matrices(written))
    compact(written, names_in(model))
    written.metadata_props.update(
        {"onnxq.float_model_hash": model_hash(model), "onnxq.target": "any", FORMAT_KEY: FORMAT}
    )
    return QuantizedModel.of(written)
