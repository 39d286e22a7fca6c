"""Carries out a plan of weights in blocks: each product reads its codes, and no float weight."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from onnxq.core.collector import without_collector
from onnxq.dynamic.tied_codes import float_matrices, store_tied_codes_once
from onnxq.graph.canonical import upgrade_opset
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.hashing import model_hash
from onnxq.graph.walk import node_name, walk
from onnxq.qdq.compact import compact, names_in
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.weights.write_dequantized import DequantizeWriter
from onnxq.weights.write_products import ProductWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir

    from onnxq.weights.plan_weights import WeightPlan


class ProductForm(enum.Enum):
    """How products of blocks are written."""

    MATMULNBITS = "matmulnbits"
    """com.microsoft MatMulNBits."""
    DEQUANTIZE = "dequantize"
    """DequantizeLinear ahead of the float product, in operators of ai.onnx alone: opset 21."""


FORMAT = "dynamic"
"""Weights alone are quantized, and activations, where they are, when the model runs."""


BLOCKS_OPSET = 21
"""First opset whose DequantizeLinear has blocks."""


@without_collector()
def write_weights(
    model: ir.Model,
    plan: WeightPlan,
    codes: Mapping[str, Mapping[str, ir.TensorProtocol]],
    accuracy: int,
    form: ProductForm = ProductForm.MATMULNBITS,
) -> QuantizedModel:
    """The model with weights in blocks; the float model stays as it is and shares what it can.

    Args:
        model: the canonical float model that the plan was made of.
        plan: which products, and in which form.
        codes: product -> arrays of `PackedBlocks` by name, in memory or on disk.
        accuracy: accuracy_level of MatMulNBits.
        form: how products are written.

    Raises:
        UnsupportedError: the opset cannot be raised as far as the types of codes need.
    """
    written = model.clone()
    writer: ProductWriter | DequantizeWriter
    if form is ProductForm.DEQUANTIZE:
        needed = max((d.spec.dtype.min_opset for d in plan.quantized.values()), default=0)
        upgrade_opset(written, max(needed, BLOCKS_OPSET))
        writer = DequantizeWriter(written)
    else:
        writer = ProductWriter(written, accuracy)
    for node, _ in list(walk(written.graph)):
        decision = plan.quantized.get(node_name(node))
        if decision is not None:
            writer.write(node, codes[node_name(node)], decision)
    store_tied_codes_once(float_matrices(written))
    compact(written, names_in(model))
    written.metadata_props.update(
        {"onnxq.float_model_hash": model_hash(model), "onnxq.target": "any", FORMAT_KEY: FORMAT}
    )
    return QuantizedModel.of(written)
