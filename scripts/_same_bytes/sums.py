"""Two sums of an ONNX file, and the first difference between two files in words.

`bytes_sum`: SHA-256 of the whole message, serialized anew so that the order of fields is protobuf's
own. Left out is what names source code: all doc strings, and the metadata entries in SOURCE, in
which the exporter notes the Python classes and lines that a node comes from.

`numbers_sum`: SHA-256 of the constants that quantization decides, each with its type and shape, as
often as a node reads it: nodes in graph order, bodies behind the node that holds them, inputs in
order. Names, attributes, node types and what no node reads are not in it. A constant is an
initializer or the tensor of a Constant node. It counts where one of these holds:

    its type is an integer of at most 32 bits (integers, zero points, biases, tables), float8 or
        float16 (weights stored so); int64 and bool are shapes, axes and masks
    the reader's schema names a zero point among its inputs (scales, biases)
    the reader is a Mul (dynamic quantization multiplies scales that are constants)

A zero point of zeros does not count where a DequantizeLinear reads it, which may go without.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from onnx import GraphProto

SOURCE = {
    "namespace",  # module paths and classes: "layers.0: onnxq.pytorch.nn.quantized.Linear/..."
    "pkg.torch.onnx.class_hierarchy",
    "pkg.torch.onnx.stack_trace",
}
"""Keys of metadata that names source code."""

INTEGER_TYPES = {
    *(TensorProto.INT4, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32),
    *(TensorProto.UINT4, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32),
    *(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.FLOAT16),
}
ZERO_POINT = 2  # slot of DequantizeLinear
SHOWN = 60  # characters of a value in a message

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Sums:
    """Both sums of a file, in hexadecimal."""

    bytes_sum: str
    numbers_sum: str


@dataclass(frozen=True, slots=True)
class Number:
    """A constant that counts, and who reads it."""

    reader: str
    array: Array


def read(file: Path) -> ModelProto:
    """The model of a file, without what names source code."""
    model = ModelProto()
    model.ParseFromString(file.read_bytes())
    _forget_source(model)
    return model


def sums(file: Path) -> Sums:
    """Both sums of a file; of one that is no model, its bytes alone."""
    if file.suffix != ".onnx":
        plain = hashlib.sha256(file.read_bytes()).hexdigest()
        return Sums(plain, plain)
    model = read(file)
    whole = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    numbers = hashlib.sha256()
    for number in numbers_of(model):
        numbers.update(f"{number.array.dtype} {number.array.shape}\n".encode())
        numbers.update(number.array.tobytes())
    return Sums(whole, numbers.hexdigest())


def numbers_of(model: ModelProto) -> Iterator[Number]:
    """The constants of `numbers_sum`, in its order."""
    yield from _numbers_of(model.graph, {}, "")


def _numbers_of(
    graph: GraphProto, outside: Mapping[str, TensorProto], where: str
) -> Iterator[Number]:
    constants = {**outside, **{tensor.name: tensor for tensor in graph.initializer}}
    for place, node in enumerate(graph.node):
        if node.op_type == "Constant":
            constants.update((node.output[0], a.t) for a in node.attribute if a.name == "value")
        label = f"{where}node {place} ({_titled(node)})"
        for slot, name in enumerate(node.input):
            tensor = constants.get(name)
            if (
                tensor is not None
                and _counts(tensor, node)
                and not _says_nothing(tensor, node, slot)
            ):
                yield Number(f"{label}, input {slot}", numpy_helper.to_array(tensor))
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _numbers_of(body, constants, f"{label}, {attribute.name}, ")


def _counts(tensor: TensorProto, reader: NodeProto) -> bool:
    if tensor.data_type in INTEGER_TYPES:
        return True
    is_float = tensor.data_type == TensorProto.FLOAT
    return is_float and (reader.op_type == "Mul" or reader.op_type in _with_zero_points())


def _says_nothing(tensor: TensorProto, reader: NodeProto, slot: int) -> bool:
    """Whether it is the zero point of a DequantizeLinear whose input says its type, and only 0."""
    is_zero_point = reader.op_type == "DequantizeLinear" and slot == ZERO_POINT
    return is_zero_point and not numpy_helper.to_array(tensor).any()


@cache
def _with_zero_points() -> frozenset[str]:
    """Operators whose schema, in any version, names a zero point among its inputs."""
    return frozenset(
        schema.name
        for schema in ort_state.get_all_operator_schema()
        if any("zero_point" in one.name.lower() for one in schema.inputs)
    )


def _forget_source(message: Message) -> None:
    """Clears doc strings and the metadata in SOURCE, in the message and all that it holds."""
    for field, value in message.ListFields():
        if field.name == "doc_string":
            message.ClearField(field.name)
        if field.name == "metadata_props":
            kept = [entry for entry in value if entry.key not in SOURCE]
            del value[:]
            value.extend(kept)
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                _forget_source(part)


def first_number(ours: ModelProto, theirs: ModelProto) -> str | None:
    """The first constant in which the numbers differ, in words; None: they are the same."""
    a, b = list(numbers_of(ours)), list(numbers_of(theirs))
    for mine, other in zip(a, b, strict=False):
        words = _unlike(mine.array, other.array)
        if words:
            return f"{mine.reader}: {words}"
    if len(a) == len(b):
        return None
    longer, whose = (a, "the working tree") if len(a) > len(b) else (b, "the other")
    return f"{longer[min(len(a), len(b))].reader}: only {whose} has it"


def _unlike(ours: Array, theirs: Array) -> str:
    mine, other = (f"{array.dtype}{list(array.shape)}" for array in (ours, theirs))
    if mine != other:
        return f"{mine}, was {other}"
    if ours.tobytes() == theirs.tobytes():
        return ""
    a, b = (np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, -1) for x in (ours, theirs))
    places = np.flatnonzero((a != b).any(1))
    here = np.unravel_index(places[0], ours.shape)
    at = f" at {[int(i) for i in here]}" if ours.ndim else ""
    return (
        f"{mine}, {len(places)} of {ours.size} elements differ, the first{at}: "
        f"{ours.flat[places[0]]}, was {theirs.flat[places[0]]}"
    )


def first_field(ours: Message, theirs: Message, where: str = "") -> str | None:
    """The first field in which two messages differ, in words; None: they are the same."""
    if ours == theirs:
        return None
    if isinstance(ours, TensorProto) and isinstance(theirs, TensorProto):
        words = _unlike(numpy_helper.to_array(ours), numpy_helper.to_array(theirs))
        if ours.name == theirs.name and words:
            return f"{where}: {words}"
    for field in ours.DESCRIPTOR.fields:
        a, b = getattr(ours, field.name), getattr(theirs, field.name)
        if a == b:
            continue
        path = f"{where}.{field.name}" if where else field.name
        if not field.is_repeated:
            return _first_value(a, b, path)
        for place, (one, other) in enumerate(zip(a, b, strict=False)):
            if one != other:
                return _first_value(one, other, f"{path}[{place}]{_named(one)}")
        return f"{path}: {len(a)} of them, was {len(b)}"
    return f"{where or 'the message'}: a field is set to its default in one of them"


def _first_value(ours: object, theirs: object, path: str) -> str | None:
    if isinstance(ours, Message) and isinstance(theirs, Message):
        return first_field(ours, theirs, path)
    return f"{path}: {_short(ours)}, was {_short(theirs)}"


def _named(value: object) -> str:
    if isinstance(value, NodeProto):
        return f" ({_titled(value)})"
    name = getattr(value, "name", "") or getattr(value, "key", "")
    return f" ('{name}')" if name else ""


def _titled(node: NodeProto) -> str:
    return f"{node.op_type} '{node.name}'"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
