"""Products by stored weights, as ONNX Runtime runs them: MatMulNBits with int8 activations.

    W (integers) -> DQ -> MatMul or Gemm    becomes    MatMulNBits, accuracy level 4

That is the form in which ONNX Runtime executes such a product: each block of a row of activations
is rounded to int8. On floats, the result would differ by what that rounding does. Which products
these are, `block_products` says; all others are dequantized, and computed in float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.core.packing import packed_rows
from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant
from onnxq.graph.types import infer_types
from onnxq.ort.node_kinds import PRODUCT_OF_BLOCKS
from onnxq.qdq.block_products import MATRIX, block_product, reads_stored_matrix

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxq.qdq.block_products import BlockProduct

    Integers = npt.NDArray[np.uint8]

MICROSOFT = "com.microsoft"
INT8_ACCURACY = 4  # session.qdq_matmulnbits_accuracy_level, ONNX Runtime's default


def write_block_products(model: ir.Model) -> None:
    """Replaces, in place, what ONNX Runtime would; all graphs."""
    candidates = [node for node in all_nodes(model) if reads_stored_matrix(node)]
    if not candidates:
        return
    infer_types(model)
    names = FreeNames(model)
    # every answer before the first change: a product is what stands in front of the next one
    found = [(node, block_product(node)) for node in candidates]
    for node, product in found:
        if product is not None:
            _replace(model, node, product, names)


def _replace(model: ir.Model, node: ir.Node, product: BlockProduct, names: FreeNames) -> None:
    arrays = _arrays(product)
    graph = graph_of(node)
    slots = [
        node.inputs[0],
        *(new_constant(node, names.value(f"{node.name}_{n}"), a) for n, a in arrays.items()),
    ]
    if len(node.inputs) > MATRIX and node.inputs[MATRIX] is not None:
        slots += [None, node.inputs[MATRIX]]
    inner, columns = product.integers.shape.numpy()
    bits = product.integers.dtype.bitwidth
    attributes = {"K": inner, "N": columns, "bits": bits, "block_size": product.block}
    made = ir.node(
        PRODUCT_OF_BLOCKS,
        slots,
        attributes | {"accuracy_level": INT8_ACCURACY},
        domain=MICROSOFT,
        name=node.name,
    )
    old, new = node.outputs[0], made.outputs[0]
    new.type, new.shape = old.type, old.shape
    graph.insert_before(node, made)
    new.name, old.name = old.name, None
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    dequantize = product.dequantize
    if not dequantize.outputs[0].uses() and isinstance(dequantize.graph, ir.Graph):
        dequantize.graph.remove(dequantize, safe=True)
    model.opset_imports.setdefault(MICROSOFT, 1)


def _arrays(product: BlockProduct) -> dict[str, npt.NDArray[np.generic]]:
    """Packed integers, scales and zero points, in MatMulNBits' own layout."""
    integers, qparams, size = product.integers, product.qparams, product.block
    bits = integers.dtype.bitwidth
    offset = 1 << (bits - 1) if integers.dtype.is_signed() else 0
    inner, columns = integers.shape.numpy()
    blocks = -(-inner // size)
    padded = np.full((columns, blocks * size), offset, np.uint8)
    padded[:, :inner] = (integers.numpy().astype(np.int16) + offset).T
    scales = np.broadcast_to(qparams.scale, (blocks, columns))
    points = np.broadcast_to(qparams.zero_point.astype(np.int16) + offset, (blocks, columns))
    return {
        "packed": packed_rows(padded, bits).reshape(columns, blocks, -1),
        "scales": np.ascontiguousarray(scales.T).reshape(-1),
        "points": packed_rows(np.ascontiguousarray(points.T, np.uint8), bits).reshape(-1),
    }
