"""The identity of a model: one hash over graph, names, attributes and weights."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    digest.add(_VERSION, *_opsets(model.opset_imports))
    _add_graph(digest, model.graph)
    for identifier, function in sorted(model.functions.items()):
        digest.add("function", *identifier, *_opsets(function.opset_imports))
        digest.add(*(f"{a.name}={_plain(a)}" for a in function.attributes.values()))
        _add_graph(digest, function.graph)
    return digest.hex()


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

    def hex(self) -> str:
        return self._state.hexdigest()


def _opsets(imports: dict[str, int]) -> list[str]:
    return [f"{domain}={version}" for domain, version in sorted(imports.items())]


def _add_graph(digest: _Digest, graph: ir.Graph) -> None:
    digest.add("inputs", *(f"{v.name}:{v.type}:{v.shape}" for v in graph.inputs))
    digest.add("outputs", *(f"{v.name}:{v.type}:{v.shape}" for v in graph.outputs))
    for name, value in sorted(graph.initializers.items()):
        digest.add("initializer", name)
        if value.const_value is not None:
            _add_tensor(digest, value.const_value)
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
        _add_tensor(digest, attribute.as_tensor())
    elif attribute.type == kinds.TENSORS:
        for tensor in attribute.as_tensors():
            _add_tensor(digest, tensor)
    else:
        digest.add(_plain(attribute))


def _plain(attribute: ir.Attr) -> str:
    value: Any = attribute.value
    if isinstance(value, list | tuple):
        return repr(tuple(value))
    return repr(value)


def _add_tensor(digest: _Digest, tensor: ir.TensorProtocol) -> None:
    digest.add(tensor.dtype.name, str(tensor.shape.numpy()))
    if tensor.dtype == ir.DataType.STRING:
        for item in tensor.numpy().reshape(-1):
            digest.add_bytes(item if isinstance(item, bytes) else str(item).encode())
        return
    if tensor.dtype.bitwidth < 8:  # packed: several elements share a byte
        digest.add_bytes(tensor.tobytes())
        return
    digest.add_stream(tensor.nbytes, _chunks(np.asarray(tensor.numpy())))


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
