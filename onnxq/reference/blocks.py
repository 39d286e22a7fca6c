"""Products by weights in blocks, as ONNX Runtime runs them: MatMulNBits with int8 activations.

    W (codes in blocks) -> DQ -> MatMul or Gemm    becomes    MatMulNBits, accuracy level 4

That is the form in which ONNX Runtime executes such a product: each block of a row of activations
is rounded to int8. On floats, the result would differ by what that rounding does. Codes that
several nodes read stay as they are: ONNX Runtime dequantizes these, and computes in float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnxq.core.packing import packed_rows
from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant
from onnxq.graph.weights import constant
from onnxq.ort.node_kinds import PRODUCT_OF_BLOCKS
from onnxq.qdq.read import SCALE, Unread, array_of, dequantizer, qparams_of
from onnxq.qparams import PerBlock, QParams
from onnxq.targets.gains import PRODUCT_OPS

if TYPE_CHECKING:
    import numpy.typing as npt

    Codes = npt.NDArray[np.uint8]

MICROSOFT = "com.microsoft"
INT8_ACCURACY = 4  # session.qdq_matmulnbits_accuracy_level, ONNX Runtime's default
MIN_BLOCK, MAX_BLOCK = 16, 256
WIDTHS = (2, 4, 8)  # bits of codes
MATRIX = 2


def write_block_products(model: ir.Model) -> None:
    """Replaces, in place, what ONNX Runtime would; all graphs."""
    names = FreeNames(model)
    for node in list(all_nodes(model)):
        dequantize = _dequantize_of(node)
        if dequantize is not None:
            _replace(model, node, dequantize, names)


def _dequantize_of(node: ir.Node) -> ir.Node | None:
    """The DequantizeLinear of a weight (K, N) in blocks along K, where the kernel takes it."""
    if node.domain or node.op_type not in PRODUCT_OPS or len(node.inputs) < MATRIX:
        return None
    plain = all(node.attributes.get_int(name, 0) == 0 for name in ("transA", "transB"))
    plain = plain and all(node.attributes.get_float(f, 1.0) == 1.0 for f in ("alpha", "beta"))
    weight = node.inputs[1]
    source = dequantizer(weight)
    if not plain or source is None:
        return None
    codes_of, qparams = source.inputs[0], qparams_of(source)
    codes = _folded(codes_of)
    if (
        codes is None
        or codes_of is None
        or max(len(value.uses()) for value in (codes_of, source.outputs[0])) > 1
        or len(codes.shape) != MATRIX
        or isinstance(qparams, Unread)
        or not isinstance(qparams.granularity, PerBlock)
        or qparams.granularity.axis % MATRIX
    ):
        return None
    size = qparams.granularity.size
    fits = MIN_BLOCK <= size <= MAX_BLOCK and size & (size - 1) == 0
    return source if fits and codes.dtype.bitwidth in WIDTHS else None


def _folded(value: ir.Value | None) -> ir.TensorProtocol | None:
    """A constant, or the transpose of one, which ONNX Runtime computes when it loads the model."""
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type != "Transpose" or producer.domain:
        return constant(value)
    tensor = constant(producer.inputs[0])
    if tensor is None:
        return None
    order = producer.attributes["perm"].as_ints() if "perm" in producer.attributes else None
    return ir.tensor(np.ascontiguousarray(tensor.numpy().transpose(order)), dtype=tensor.dtype)


def _replace(model: ir.Model, node: ir.Node, dequantize: ir.Node, names: FreeNames) -> None:
    tensor, scale = _folded(dequantize.inputs[0]), array_of(dequantize, SCALE)
    qparams = qparams_of(dequantize)
    assert tensor is not None, "_dequantize_of looked"
    assert scale is not None
    assert isinstance(qparams, QParams)
    bits, size = tensor.dtype.bitwidth, dequantize.attributes.get_int("block_size", 0)
    offset = 1 << (bits - 1) if tensor.dtype.is_signed() else 0
    inner, columns = tensor.shape.numpy()
    blocks = -(-inner // size)
    points = qparams.zero_point.astype(np.int16)
    padded = np.full((columns, blocks * size), offset, np.uint8)
    padded[:, :inner] = (tensor.numpy().astype(np.int16) + offset).T
    arrays = {
        "packed": packed_rows(padded, bits).reshape(columns, blocks, -1),
        "scales": np.ascontiguousarray(scale.T).reshape(-1),
        "points": packed_rows((points + offset).T.astype(np.uint8), bits).reshape(-1),
    }
    graph = graph_of(node)
    slots = [
        node.inputs[0],
        *(new_constant(node, names.value(f"{node.name}_{n}"), a) for n, a in arrays.items()),
    ]
    if len(node.inputs) > MATRIX and node.inputs[MATRIX] is not None:
        slots += [None, node.inputs[MATRIX]]
    attributes = {"K": inner, "N": columns, "bits": bits, "block_size": size}
    product = ir.node(
        PRODUCT_OF_BLOCKS,
        slots,
        attributes | {"accuracy_level": INT8_ACCURACY},
        domain=MICROSOFT,
        name=node.name,
    )
    old, new = node.outputs[0], product.outputs[0]
    new.type, new.shape = old.type, old.shape
    graph.insert_before(node, product)
    new.name, old.name = old.name, None
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    if not dequantize.outputs[0].uses() and isinstance(dequantize.graph, ir.Graph):
        dequantize.graph.remove(dequantize, safe=True)
    model.opset_imports.setdefault(MICROSOFT, 1)
