"""Integers of 4 and 2 bits: packed in the file, a byte each where kernels read them.

    w_quantized (int8)      becomes     w_quantized_int4 -> Cast -> w_quantized (int8)

ONNX Runtime carries out the Cast when it loads the model (`Fact.unpacks`), and its int8 kernels
run: the file shrinks, the session does not.
"""

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.dtypes import BYTE_BITS, QDType, in_bytes
from onnxq.graph.edit import FreeNames, all_nodes, forget_unread, graph_of, new_initializer
from onnxq.graph.walk import value_name
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import tensor_of
from onnxq.ort import facts
from onnxq.ort.version import OLDEST
from onnxq.qdq.read import STORED
from onnxq.qparams import PerBlock, QParams

CAST = "Cast"
LEAST_BYTES = 256
"""Smaller constants stay: the names and the node of a Cast take about half as much."""


def narrow_types(stored: Iterable[QParams]) -> set[QDType]:
    """Types of fewer than 8 bits among qparams of weights that are not in blocks."""
    return {
        qparams.dtype
        for qparams in stored
        if not isinstance(qparams.granularity, PerBlock)
        and in_bytes(qparams.dtype) != qparams.dtype
    }


def store_narrow(model: ir.Model, types: Collection[QDType]) -> None:
    """Packs constant integers, in place, in the narrowest of these types that holds them."""
    unpacked = facts.named(CAST, OLDEST).unpacks
    kinds = sorted(types, key=lambda dtype: dtype.bits)
    kinds = [dtype for dtype in kinds if ir.DataType[dtype.onnx] in unpacked]
    if not kinds:
        return
    names = FreeNames(model)
    for graph in model.graphs():
        for value in list(graph.initializers.values()):
            if dtype := _narrowest(value, kinds):
                _pack(graph, value, dtype, names)


def _narrowest(value: ir.Value, kinds: Iterable[QDType]) -> QDType | None:
    """The first of these types that holds the integers of a constant; None: none does."""
    tensor = constant(value)
    if tensor is None or value.is_graph_output() or tensor.nbytes < LEAST_BYTES:
        return None
    if any(use.node.attributes.get_int("block_size", 0) for use in value.uses()):
        return None  # packed already, several in a byte
    fitting = [t for t in kinds if in_bytes(t).onnx == tensor.dtype.name]
    if not fitting:
        return None
    integers = tensor.numpy()
    low, high = int(integers.min()), int(integers.max())
    return next((t for t in fitting if t.qmin <= low and high <= t.qmax), None)


def _pack(graph: ir.Graph, value: ir.Value, dtype: QDType, names: FreeNames) -> None:
    name = value_name(value)
    tensor, stored = tensor_of(value), ir.DataType[dtype.onnx]
    packed_name = names.value(f"{name}_{dtype}")

    def packed() -> Array:
        array: Array = tensor.numpy().astype(stored.numpy())
        return array

    shape = tuple(tensor.shape.numpy())
    source = new_initializer(graph, packed_name, derived(packed, stored, shape, packed_name))
    to = {"to": int(tensor.dtype)}
    unpack = ir.node(CAST, [source], to, name=names.node(f"{name}_unpack"))
    result = unpack.outputs[0]
    result.type, result.shape = value.type, value.shape
    value.replace_all_uses_with(result)
    del graph.initializers[name]
    result.name, value.name = name, None
    graph.insert_before(graph[0], unpack)


def unpacked(model: ir.Model) -> ir.Model:
    """The model as ONNX Runtime loads it: packed integers in bytes; itself where none are packed.

    Weights are shared with the model, and unpacked when they are read.
    """
    if not any(map(packed_source, all_nodes(model))):
        return model
    copy = model.clone()
    for node, source in list(_packed(copy)):
        graph, result, tensor = graph_of(node), node.outputs[0], source.const_value
        assert tensor is not None, "a constant"
        name, kind = value_name(result), ir.DataType(node.attributes.get_int("to", 0))
        result.name = None

        def in_memory(tensor: ir.TensorProtocol = tensor, kind: ir.DataType = kind) -> Array:
            return np.asarray(tensor.numpy()).astype(kind.numpy())

        shape = tuple(tensor.shape.numpy())
        made = new_initializer(graph, name, derived(in_memory, kind, shape, name))
        result.replace_all_uses_with(made)
        graph.remove(node, safe=True)
        forget_unread(source)
    return copy


def packed_bytes(model: ir.Model) -> tuple[int, int]:
    """Bytes of packed constants: in the file, and in a session, which unpacks them."""
    tensors = [tensor_of(source) for _, source in _packed(model)]
    return sum(t.nbytes for t in tensors), sum(t.size for t in tensors)


def _packed(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Value]]:
    for node in all_nodes(model):
        if (source := packed_source(node)) is not None:
            yield node, source


def packed_source(node: ir.Node | None) -> ir.Value | None:
    """The packed constant that a node unpacks to bytes; None: the node does something else."""
    if node is None or node.op_type != CAST or node.domain:
        return None
    source = node.inputs[0]
    tensor = constant(source)
    if tensor is None or tensor.dtype.bitwidth >= BYTE_BITS or node.outputs[0].is_graph_output():
        return None
    stored = STORED.get(tensor.dtype.name)
    to = ir.DataType(node.attributes.get_int("to", 0)).name
    return source if stored is not None and in_bytes(stored).onnx == to else None
