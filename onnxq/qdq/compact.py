"""The same integer model in fewer bytes: constants and names that quantization has brought.

    scale, zero point, bound        equal ones of a graph (value, type, shape) are one initializer
    DQ(bias integers, scale, zeros)    DQ(bias integers, scale)
    "/encoder/.../MatMul_output_0_dequantized"   "~..." and its last characters

Other zero points stay, shared: ONNX Runtime leaves a Gemm in float whose weight has none, or until
1.27 fails on it (tests/qdq/test_compact.py asks), and MatMul with Add is a Gemm to it. Factors of a
Mul are not shared: it merges Mul nodes that become equal, before it fuses them with their readers
(see dynamic/rewrite_dynamic.py).
"""

from collections.abc import Container, Hashable

import onnx_ir as ir

from onnxq.graph.edit import NamePool, all_nodes, all_values, forget_unread
from onnxq.graph.walk import value_name
from onnxq.operator.nodes import tensor_of
from onnxq.qdq import read

INTEGERS_SUFFIX = "_quantized"
"""End of the name of a tensor's integers, by which they are compared with the float tensor."""
BIAS_TYPE = ir.DataType.INT32
SHARED_BYTES = 1 << 16
"""Larger constants are weights; these are shared where they are made."""
NAME_CHARACTERS = 48
"""Length of a name that quantization brings; stems of exporters take up to 150."""


def names_in(model: ir.Model) -> frozenset[str]:
    """Every name of a value or a node."""
    values = {v.name for graph in model.graphs() for v in all_values(graph) if v.name}
    return frozenset(values | {node.name for node in all_nodes(model) if node.name})


def compact(model: ir.Model, known: Container[str]) -> None:
    """Rewrites the model in place, as this module says; every integer and scale stays."""
    _drop_zero_points(model)
    named = _named_after_integers(model)
    for graph in model.graphs():
        _share_equal(graph, known, named)
    _shorten(model, known, named)


def _drop_zero_points(model: ir.Model) -> None:
    for node in all_nodes(model):
        if not (
            read.is_dequantize(node)
            and read.is_constant(node)
            and read.integer_type(node) == BIAS_TYPE
        ):
            continue
        zero_point, zeros = read.zero_point_of(node), read.array_of(node, read.ZERO_POINT)
        if zero_point is not None and zeros is not None and not zeros.any():
            node.resize_inputs(read.ZERO_POINT)
            forget_unread(zero_point)


def _named_after_integers(model: ir.Model) -> frozenset[str]:
    """Names of scales and zero points that alone tell what integers stand for.

    Integers between two nodes on integers have neither Q nor DQ beside them.
    """
    found = set()
    for node in all_nodes(model):
        for value in node.outputs:
            name = value.name or ""
            beside = read.is_quantize(node) or any(
                read.is_dequantize(use.node) for use in value.uses()
            )
            if name.endswith(INTEGERS_SUFFIX) and not beside:
                stem = name.removesuffix(INTEGERS_SUFFIX)
                found |= {f"{stem}_scale", f"{stem}_zero_point"}
    return frozenset(found)


def _share_equal(graph: ir.Graph, known: Container[str], named: Container[str]) -> None:
    """Readers of equal constants read one of them; that of a name in `named` where there is one."""
    first: dict[Hashable, ir.Value] = {}
    mine = [
        v for v in graph.initializers.values() if value_name(v) not in known and _can_be_shared(v)
    ]
    for value in sorted(mine, key=lambda v: value_name(v) not in named):  # stable: these first
        tensor = tensor_of(value)
        contents = tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()
        one = first.setdefault(contents, value)
        if one is not value and value_name(value) not in named:
            value.replace_all_uses_with(one)
            forget_unread(value)


def _can_be_shared(value: ir.Value) -> bool:
    if value.is_graph_input() or value.is_graph_output():
        return False
    readers = [use.node for use in value.uses()]
    is_factor = any(node.op_type == "Mul" for node in readers)
    # ONNX Runtime makes a MatMulNBits of integers in blocks, where no other node reads them
    in_blocks = any(node.attributes.get_int("block_size", 0) for node in readers)
    return not (is_factor or in_blocks) and tensor_of(value).nbytes <= SHARED_BYTES


def _shorten(model: ir.Model, known: Container[str], named: Container[str]) -> None:
    """Keeps the last characters of long names, which say most; names of integers stay whole."""
    pool = NamePool(names_in(model))

    def is_long(name: str | None) -> bool:
        return len(name or "") > NAME_CHARACTERS and name not in known and name not in named

    def short(name: str | None) -> str:
        return pool.take(f"~{str(name)[1 - NAME_CHARACTERS :]}")

    for graph in model.graphs():
        for value in list(all_values(graph)):
            if is_long(value.name) and not str(value.name).endswith(INTEGERS_SUFFIX):
                value.name = short(value.name)
    for node in all_nodes(model):
        if is_long(node.name):
            node.name = short(node.name)
