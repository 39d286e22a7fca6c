"""The identity of a model: one hash over graph, names, attributes and weights.

And a seal, which tells in no time whether the model in hand was changed since.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.core.arrays import Array

CHUNK_BYTES = 1 << 24  # of a transposed weight this much is copied at a time
_VERSION = "onnxq-model-hash-1"


def model_hash(model: ir.Model) -> str:
    """A hex digest (BLAKE2b, 128 bits) that is the same wherever and however the model is stored.

    It covers opsets, graphs, functions, names, attributes, types of inputs and outputs, and every
    weight; not metadata, doc strings, inferred types, or the order of initializers. Weights are
    read in chunks.
    """
    digest = _Digest()
    _add_model(digest, model)
    return digest.hex()


@dataclass(frozen=True, slots=True)
class Seal:
    """A model in memory at one moment: equal for two looks only if nothing was edited in between.

    Weights count as the objects that they are, so that none is read.

    Attributes:
        skeleton: digest of all but the weights.
        tensors: the weights; held, so that none can be exchanged for another of its address.
    """

    skeleton: str
    tensors: tuple[ir.TensorProtocol, ...]

    @classmethod
    def of(cls, model: ir.Model) -> Self:
        """The model's seal as it is now; a copy of the model has another."""
        digest = _Skeleton()
        _add_model(digest, model)
        return cls(digest.hex(), tuple(digest.tensors))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Seal)
            and self.skeleton == other.skeleton
            and list(map(id, self.tensors)) == list(map(id, other.tensors))
        )

    def __hash__(self) -> int:
        return hash(self.skeleton)


class _Digest:
    """BLAKE2b over strings, each with its length, so that no two sequences look alike."""

    def __init__(self) -> None:
        self._state = hashlib.blake2b(digest_size=16)

    def add(self, *items: str) -> None:
        for item in items:
            self.add_bytes(item.encode())

    def add_bytes(self, data: bytes) -> None:
        self._state.update(len(data).to_bytes(8, "little"))
        self._state.update(data)

    def add_stream(self, size: int, chunks: Iterator[npt.NDArray[np.uint8]]) -> None:
        self._state.update(size.to_bytes(8, "little"))
        for chunk in chunks:
            self._state.update(chunk)  # type: ignore[arg-type]  # NumPy's stubs lack Buffer

    def add_tensor(self, tensor: ir.TensorProtocol) -> None:
        self.add(tensor.dtype.name, str(tensor.shape.numpy()))
        if tensor.dtype == ir.DataType.STRING:
            for item in tensor.numpy().reshape(-1):
                self.add_bytes(item if isinstance(item, bytes) else str(item).encode())
            return
        if tensor.dtype.bitwidth < 8:  # packed: several elements share a byte
            self.add_bytes(tensor.tobytes())
            return
        self.add_stream(tensor.nbytes, _chunks(np.asarray(tensor.numpy())))

    def hex(self) -> str:
        return self._state.hexdigest()


class _Skeleton(_Digest):
    """A digest that notes tensors in place of reading them."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[ir.TensorProtocol] = []

    def add_tensor(self, tensor: ir.TensorProtocol) -> None:
        self.tensors.append(tensor)


def _add_model(digest: _Digest, model: ir.Model) -> None:
    digest.add(_VERSION, *_opsets(model.opset_imports))
    _add_graph(digest, model.graph)
    for identifier, function in sorted(model.functions.items()):
        digest.add("function", *identifier, *_opsets(function.opset_imports))
        digest.add(*(f"{a.name}={_plain(a)}" for a in function.attributes.values()))
        _add_graph(digest, function.graph)


def _opsets(imports: dict[str, int]) -> list[str]:
    return [f"{domain}={version}" for domain, version in sorted(imports.items())]


def _add_graph(digest: _Digest, graph: ir.Graph) -> None:
    digest.add("inputs", *(f"{v.name}:{v.type}:{v.shape}" for v in graph.inputs))
    digest.add("outputs", *(f"{v.name}:{v.type}:{v.shape}" for v in graph.outputs))
    for name, value in sorted(graph.initializers.items()):
        digest.add("initializer", name)
        if value.const_value is not None:
            digest.add_tensor(value.const_value)
    for node in graph:
        digest.add("node", node.name or "", node.domain, node.op_type, node.overload)
        digest.add("reads", *("" if v is None else v.name or "" for v in node.inputs))
        digest.add("writes", *(v.name or "" for v in node.outputs))
        for _, attribute in sorted(node.attributes.items()):
            _add_attribute(digest, attribute)
    digest.add("end")


def _add_attribute(digest: _Digest, attribute: ir.Attr) -> None:
    kinds = ir.AttributeType
    digest.add("attribute", attribute.name, attribute.type.name)
    if attribute.is_ref():
        digest.add("ref", attribute.ref_attr_name or "")
    elif attribute.type == kinds.GRAPH:
        _add_graph(digest, attribute.as_graph())
    elif attribute.type == kinds.GRAPHS:
        for graph in attribute.as_graphs():
            _add_graph(digest, graph)
    elif attribute.type == kinds.TENSOR:
        digest.add_tensor(attribute.as_tensor())
    elif attribute.type == kinds.TENSORS:
        for tensor in attribute.as_tensors():
            digest.add_tensor(tensor)
    else:
        digest.add(_plain(attribute))


def _plain(attribute: ir.Attr) -> str:
    value: Any = attribute.value
    single = attribute.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS)  # as files hold it
    if isinstance(value, list | tuple):
        return repr(tuple(float(np.float32(x)) if single else x for x in value))
    return repr(float(np.float32(value)) if single else value)


def _chunks(array: Array) -> Iterator[npt.NDArray[np.uint8]]:
    """The elements in C order as little-endian bytes; only what is not contiguous is copied."""
    if array.size == 0:
        return
    if array.flags.c_contiguous:
        yield array.reshape(-1).view(np.uint8)
        return
    rows = max(1, CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        block = np.ascontiguousarray(array[start : start + rows])
        yield block.reshape(-1).view(np.uint8)
