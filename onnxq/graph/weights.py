"""Tensors that stand for weights without holding them: computed when read, then forgotten."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.dtypes import BYTE_BITS
from onnxq.operator.nodes import tensor_of

EAGER_BYTES = 1 << 20  # up to here a copy is cheaper than computing the tensor at every read


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer that nothing can override, else None."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return value.const_value


def is_private(value: ir.Value) -> bool:
    """Whether one node reads this initializer, once: then its tensor may be exchanged."""
    return len(value.uses()) == 1 and not value.is_graph_output() and not value.is_graph_input()


def derived(
    compute: Callable[[], Array], dtype: ir.DataType, shape: Sequence[int], name: str | None = None
) -> ir.TensorProtocol:
    """The tensor that `compute` returns: now where it is small, else at every read, never kept."""

    def evaluate() -> ir.Tensor[Any]:
        # copies transposed views: writing them to a file element by element takes minutes
        array = np.ascontiguousarray(compute()).reshape(tuple(shape))
        return ir.Tensor(array, dtype=dtype, shape=ir.Shape(shape), name=name)

    if int(np.prod(shape, dtype=np.int64)) * dtype.itemsize <= EAGER_BYTES:
        return evaluate()
    return ir.LazyTensor(evaluate, dtype, ir.Shape(shape), name=name)


def hold_as_arrays(model: ir.Model) -> None:
    """Makes weights arrays that all readers share, in place; files stay memory-mapped.

    Those of a protobuf are copied, and those of `derived` computed, at every read; here once. The
    protobuf is freed, if nothing else holds a part of it.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = _held(value.const_value)
    for scope in (*model.graphs(), *model.functions.values()):
        for node in scope:
            for name, attribute in node.attributes.items():
                if isinstance(attribute.value, ir.TensorProtoTensor | ir.StringTensor):
                    held = _held(attribute.value)
                    node.attributes[name] = ir.AttrTensor(name, held, attribute.doc_string)


def _held(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """The tensor as an array; what NumPy has no type of its own for, in a protobuf of its own."""
    if isinstance(tensor, ir.StringTensor) and not isinstance(tensor.raw, np.ndarray):
        return ir.StringTensor(list(tensor.raw), shape=tensor.shape, name=tensor.name)
    if not isinstance(tensor, ir.LazyTensor | ir.TensorProtoTensor):
        return tensor
    if tensor.dtype.bitwidth < BYTE_BITS:
        if isinstance(tensor, ir.LazyTensor):
            return tensor
        return ir.TensorProtoTensor(copy.deepcopy(tensor.raw))
    held = ir.Tensor(
        tensor.numpy(), dtype=tensor.dtype, name=tensor.name, doc_string=tensor.doc_string
    )
    held.metadata_props.update(tensor.metadata_props)
    held.meta.update(tensor.meta)
    return held


def renamed(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """The same data under another name; the tensor, which other models share, keeps its own."""
    if isinstance(tensor, ir.ExternalTensor):
        return ir.ExternalTensor(
            tensor.location,
            tensor.offset,
            tensor.length,
            tensor.dtype,
            shape=tensor.shape,
            name=name,
            base_dir=tensor.base_dir,
        )
    if isinstance(tensor, ir.StringTensor):
        return ir.StringTensor(tensor.raw, shape=tensor.shape, name=name)
    shape = ir.Shape(tensor.shape.numpy())
    made = ir.LazyTensor(lambda: tensor, tensor.dtype, shape, name=name)
    made.meta.update(tensor.meta)  # how it was folded (graph.folded)
    return made


def constant_array(value: ir.Value) -> npt.NDArray[np.float32]:
    """The initializer's array, mapped from disk where it is external."""
    return tensor_of(value).numpy()
