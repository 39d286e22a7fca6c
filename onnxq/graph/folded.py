"""Constants that are stored smaller than they are read: float16 or integers behind a few nodes.

    w_q (int8) -> DequantizeLinear -> Transpose -> MatMul        a file, as it is given
    w (float32, folded from the nodes above) -> MatMul           the canonical model
    w_q (int8) -> Cast -> Mul -> Transpose -> MatMul             the result, where w stays in float

A pass that computes a constant notes on its tensor what it was computed from. What is left of these
constants in a result is written as it was given, so that no file grows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.dtypes import BYTE_BITS
from onnxq.graph.edit import FreeNames, home_of, new_initializer
from onnxq.graph.saving import weight_bytes
from onnxq.graph.walk import value_name
from onnxq.graph.weights import renamed
from onnxq.operator.nodes import tensor_of

Compute = Callable[[Sequence[Array | None]], Array]

_KEY = "onnxq.folded"
_DEPTH = "onnxq.folded.depth"
DEEPEST = 64
"""Nodes in a row that are noted: what more of them computed counts as stored; chosen."""
_WIDENS = ("Cast", "DequantizeLinear")
LEAST_SAVED_BYTES = 1024  # smaller constants are not worth their nodes
GROWN = 0.05
"""Share of all constants' bytes from which on tables (Range, Cos, Expand) stay the nodes they were,
which ONNX Runtime computes when it loads the file; chosen, not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """A node that was computed ahead of time.

    Attributes:
        inputs: constants that it read; None: left out.
        compute: arrays of the inputs -> array of the result.
        output: number of the result among the node's outputs.
    """

    op_type: str
    attributes: tuple[ir.Attr, ...]
    inputs: tuple[ir.TensorProtocol | None, ...]
    compute: Compute
    output: int = 0
    outputs: int = 1


def note(tensor: ir.TensorProtocol, folded: Folded) -> ir.TensorProtocol:
    """The tensor, with how it was computed; every copy of the model shares it."""
    depth = 1 + max((depth_of(x) for x in folded.inputs if x is not None), default=0)
    if depth <= DEEPEST:
        tensor.meta[_KEY], tensor.meta[_DEPTH] = folded, depth
    return tensor


def depth_of(tensor: ir.TensorProtocol) -> int:
    """Nodes in a row that computed the tensor; 0: it is stored as it is."""
    depth: int = tensor.meta.get(_DEPTH, 0)
    return depth


def folded_of(tensor: ir.TensorProtocol | None) -> Folded | None:
    """How the tensor was computed; None: it is stored as it is."""
    return None if tensor is None else tensor.meta.get(_KEY)


def note_cast(stored: ir.TensorProtocol, wide: ir.TensorProtocol) -> ir.TensorProtocol:
    """The wide tensor, as a Cast of the stored one."""

    def compute(arrays: Sequence[Array | None]) -> Array:
        return np.asarray(arrays[0], wide.dtype.numpy())

    return note(wide, Folded("Cast", (ir.AttrInt64("to", wide.dtype.value),), (stored,), compute))


def note_factor(
    stored: ir.TensorProtocol, factor: Array, product: ir.TensorProtocol
) -> ir.TensorProtocol:
    """The product, as a Mul of a constant that was computed itself."""
    if folded_of(stored) is None:
        return product

    def compute(arrays: Sequence[Array | None]) -> Array:
        left, right = (np.asarray(array) for array in arrays)
        return np.asarray(left * right)

    return note(product, Folded("Mul", (), (stored, ir.tensor(factor)), compute))


def given_bytes(tensor: ir.TensorProtocol) -> int:
    """Bytes of the constants that the tensor is computed from, or its own where it is not."""
    return sum(one.nbytes for one in computed_from(tensor) if folded_of(one) is None)


def saved_by_writing_as_given(model: ir.Model) -> int:
    """Bytes that `write_as_given` takes off the model."""
    seen = {id(v.const_value): v.const_value for v in _smaller(model)}
    return sum(tensor.nbytes - given_bytes(tensor) for tensor in seen.values() if tensor)


def write_as_given(model: ir.Model) -> None:
    """Puts the stored constants and their nodes in place of what was computed from them."""
    found = _smaller(model)
    if not found:
        return
    writer = _Writer(FreeNames(model))
    for value in found:
        writer.write(value)


def as_given(model: ir.Model) -> ir.Model:
    """A copy with constants as they were stored; the model itself where none was smaller."""
    if not _smaller(model):
        return model
    copy = model.clone()
    write_as_given(copy)
    return copy


def _smaller(model: ir.Model) -> list[ir.Value]:
    """Initializers that were given in fewer bytes; those of as many bits, where they are many."""
    found = [
        value
        for graph in model.graphs()
        for value in graph.initializers.values()
        if (tensor := value.const_value) is not None
        and tensor.nbytes - given_bytes(tensor) >= LEAST_SAVED_BYTES
        and value.uses()
        and not value.is_graph_output()
        and not value.is_graph_input()
    ]
    widened = [value for value in found if _is_widened(tensor_of(value))]
    grown = {id(t): t for v in found if not _is_widened(t := tensor_of(v))}.values()
    more = sum(tensor.nbytes - given_bytes(tensor) for tensor in grown)
    return found if more > GROWN * weight_bytes(model) else widened


def _is_widened(tensor: ir.TensorProtocol) -> bool:
    """Whether integers, or floats of fewer bits, became its numbers: not one Expand of a scalar."""
    for one in computed_from(tensor):
        folded = folded_of(one)
        stored = folded.inputs[0] if folded and folded.op_type in _WIDENS else None
        if stored is not None and stored.dtype.bitwidth < one.dtype.bitwidth:
            return True
    return False


def computed_from(tensor: ir.TensorProtocol) -> Iterator[ir.TensorProtocol]:
    """The tensor and all constants that it was computed from, each once, the nearest first."""
    waiting, seen = [tensor], {id(tensor)}
    while waiting:
        yield (one := waiting.pop())
        folded = folded_of(one)
        for x in reversed(folded.inputs if folded else ()):
            if x is not None and id(x) not in seen:
                seen.add(id(x))
                waiting.append(x)


class _Writer:
    """Nodes and constants written so far, each once in a graph."""

    def __init__(self, names: FreeNames) -> None:
        self._names = names
        # with the tensors, whose ids are free for others when they are gone
        self._made: dict[tuple[ir.Graph, int], tuple[ir.TensorProtocol, ir.Value]] = {}
        self._first: dict[ir.Graph, ir.Node] = {}

    def write(self, value: ir.Value) -> None:
        """The initializer becomes the result of nodes at the start of its graph."""
        graph, name = home_of(value), value_name(value)
        made = self._result(graph, tensor_of(value), name)
        value.replace_all_uses_with(made)
        del graph.initializers[name]
        value.name = None
        made.name = name
        made.metadata_props.update(value.metadata_props)

    def _result(self, graph: ir.Graph, tensor: ir.TensorProtocol, stem: str) -> ir.Value:
        if (graph, id(tensor)) not in self._made:
            self._made[graph, id(tensor)] = tensor, self._new(graph, tensor, stem)
        return self._made[graph, id(tensor)][1]

    def _new(self, graph: ir.Graph, tensor: ir.TensorProtocol, stem: str) -> ir.Value:
        folded = folded_of(tensor)
        if folded is None or tensor.nbytes - given_bytes(tensor) < LEAST_SAVED_BYTES:
            unique = self._names.value(tensor.name or f"{stem}_stored")
            return new_initializer(graph, unique, renamed(tensor, unique))
        folded = _foldable(folded, tensor)
        inputs = [x if x is None else self._result(graph, x, stem) for x in folded.inputs]
        kind = folded.op_type.lower()
        node = ir.Node(
            "",
            folded.op_type,
            inputs,
            folded.attributes,
            num_outputs=folded.outputs,
            name=self._names.node(f"{stem}_{kind}"),
        )
        graph.insert_before(self._first.setdefault(graph, graph[0]), node)
        for output in node.outputs:
            output.name = self._names.value(f"{stem}_{kind}")
        result = node.outputs[folded.output]
        result.type, result.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        return result


def _foldable(folded: Folded, result: ir.TensorProtocol) -> Folded:
    """A DequantizeLinear of bytes as Cast, Sub and Mul, which ONNX Runtime computes once, at load.

    It computes a DequantizeLinear in every run, or makes it a part of a layer in integers.
    """
    if folded.op_type != "DequantizeLinear":
        return folded
    integers, scale, *others = folded.inputs
    attributes = {a.name: a.value for a in folded.attributes}
    is_plain = integers is not None and integers.dtype.bitwidth == BYTE_BITS
    if not is_plain or result.dtype != ir.DataType.FLOAT or attributes.get("block_size"):
        return folded
    assert integers is not None
    rank = len(integers.shape)

    def column(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        numbers = np.asarray(tensor.numpy(), np.float32).reshape(-1)
        axis = attributes.get("axis", 1) % max(rank, 1)
        sizes = [-1 if i == axis else 1 for i in range(rank)] if numbers.size > 1 else []
        return ir.tensor(numbers.reshape(sizes))

    def wide() -> ir.LazyTensor:  # stands between two nodes, and is not read
        return ir.LazyTensor(lambda: result, result.dtype, ir.Shape(integers.shape.numpy()))

    centred = note_cast(integers, wide())
    zero_point = others[0] if others else None
    if zero_point is not None and np.any(zero_point.numpy()):
        sub = Folded("Sub", (), (centred, column(zero_point)), folded.compute)
        centred = note(wide(), sub)
    assert scale is not None
    return Folded("Mul", (), (centred, column(scale)), folded.compute)
