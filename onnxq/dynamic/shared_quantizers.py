"""One DynamicQuantizeLinear for all readers of a tensor, where ONNX Runtime still fuses it.

    x -> DQL -> MatMulInteger (Q)          x -> DQL -> MatMulInteger (Q), (K), (V)
    x -> DQL -> MatMulInteger (K)    =>
    x -> DQL -> MatMulInteger (V)

ONNX Runtime then runs one DynamicQuantizeLinear and three MatMulIntegerToFloat. It merges equal
nodes before it fuses, though: where two weights have the same scale, their x_scale * w_scale is one
Mul with two readers, and neither product is fused. Scalar constants are told apart by value only,
so the second such scale is written as a vector, one (equal) number per column, which is not merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, merge_equal
from onnxq.graph.weights import constant

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

QUANTIZER, PRODUCT = "DynamicQuantizeLinear", "MatMulInteger"
_INTEGERS, _SCALE = 0, 1  # outputs of the quantizer


class ShareQuantizers(ir.passes.InPlacePass):
    """Equal DynamicQuantizeLinear nodes of one graph become one. Every graph, for itself."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merges, then tells equal scales apart."""
        names: FreeNames | None = None
        modified = False
        for graph in model.graphs():
            modified = merge_equal(graph, _said) or modified
            for node in filter(_is_quantizer, list(graph)):
                for product in _twins(node):
                    names = names or FreeNames(model)
                    modified = _as_vector(product, names) or modified
        return ir.passes.PassResult(model, modified)


def share_quantizers(model: ir.Model) -> None:
    """Runs the pass in place."""
    ShareQuantizers()(model)


def _said(node: ir.Node) -> Hashable | None:
    return node.inputs[0] if _is_quantizer(node) else None


def _is_quantizer(node: ir.Node) -> bool:
    return node.op_type == QUANTIZER and not node.domain


def _twins(quantizer: ir.Node) -> Iterable[ir.Node]:
    """Products of the quantizer's scale with a number that an earlier such product has, too."""
    seen: set[bytes] = set()
    for use in list(quantizer.outputs[_SCALE].uses()):
        scale = _number(use.node)
        if scale is None:
            continue
        if scale.tobytes() in seen:
            yield use.node
        seen.add(scale.tobytes())


def _number(node: ir.Node) -> np.ndarray | None:
    """w_scale of a Mul by one number; None for anything else."""
    if node.op_type != "Mul" or node.domain:
        return None
    tensor = constant(node.inputs[1])
    return tensor.numpy() if tensor is not None and tensor.size == 1 else None


def _as_vector(product: ir.Node, names: FreeNames) -> bool:
    """Gives x_scale * w_scale a w_scale per column. False where the weight has one column only."""
    scale, columns = product.inputs[1], _columns(product)
    graph = scale.graph if scale is not None else None
    number = _number(product)
    if scale is None or graph is None or number is None or columns is None or columns < 2:
        return False
    name = names.value(f"{scale.name}_per_column")
    tensor = ir.Tensor(np.full(columns, number.reshape(())), name=name)
    vector = ir.Value(name=name, type=scale.type, shape=ir.Shape((columns,)), const_value=tensor)
    graph.register_initializer(vector)
    product.replace_input_with(1, vector)
    product.outputs[0].shape = ir.Shape((columns,))
    if not scale.uses() and not scale.is_graph_output():
        del graph.initializers[str(scale.name)]
    return True


def _columns(product: ir.Node) -> int | None:
    """Columns of the weight whose integer product x_scale * w_scale multiplies."""
    for use in product.outputs[0].uses():
        for value in use.node.inputs:
            cast = value.producer() if value is not None else None
            total = cast.inputs[0].producer() if cast is not None and cast.inputs[0] else None
            if cast is None or total is None or total.op_type != PRODUCT:
                continue
            weight = constant(total.inputs[1])
            shape = weight.shape.numpy() if weight is not None else ()
            return shape[-1] if len(shape) > 1 else None
    return None
