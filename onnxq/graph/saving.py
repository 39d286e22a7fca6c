"""Writes a model in one stroke: temporary files in the target folder, then a rename.

Data file of a model that is too large for one file, named by its bytes.

    model.onnx                  refers to
    model.onnx.5b1f0c9d.data    8 digits: CRC-32 of the file

The data file gets its name first, and no file of other bytes ever has that name. Then the graph
replaces the old one: two files, one event; then the old graph's data file is removed. Killed at any
moment, the graph that stands there has its own weights beside it. A kill can leave a data file that
no graph names.
"""

import contextlib
import filecmp
import io
import re
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError

from onnxq.core.atomic import as_output_error, check_writable, put, temporary, write_atomically
from onnxq.core.collector import without_collector
from onnxq.core.regular import why_no_file
from onnxq.errors import ModelError, kind_of
from onnxq.graph.annotations import Annotations, drop_annotations
from onnxq.graph.edit import all_nodes
from onnxq.graph.skeleton import Swap, in_memory, is_big, placeholder, proto_graphs, serialize
from onnxq.graph.untrusted.check_model import refuse
from onnxq.graph.untrusted.external_data import check_external_data

EXTERNAL_BYTES = 1_900_000_000  # protobuf stops at 2^31 - 1 bytes; graph and names need some of it
DECODER_BYTES = 100_000_000
"""Weights of a decoder that still go into its file. More lie beside it: a session maps them, and
onnxruntime-genai needs half of the memory and a third of the time to open 237 MB."""
_PAST = "past_key_values."
ALIGNMENT = 4096  # a page: readers can map each weight on its own

# field numbers of onnx.proto; all length-delimited
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_RAW_DATA = 9
_PIECE = 1 << 24  # bytes that are read at once
_NAMES = 1 << 32


@without_collector()
def save(
    model: ir.Model,
    path: str | Path,
    annotations: Annotations = Annotations.DROPPED,
    inline_bytes: int | None = None,
) -> None:
    """Writes the model to path: all of it or nothing; the model itself is left as it is.

    One self-contained file up to `inline_bytes` of weights; above, the weights go to a file beside
    it, `<name>.<8 digits>.data` (see `data_file`). Lazy tensors are evaluated one at a time and
    forgotten. The data file of the model that stood there is removed; where the model itself reads
    it, its tensors are then invalid, so load the new file.

    Args:
        model: any; onnxq's own metadata is always written.
        path: of the file.
        annotations: whether inferred types and exporters' notes are written, too.
        inline_bytes: most weights in the file itself; None: 1.9 GB, of decoders with a cache
            100 MB. 0: every large weight goes beside it.
    Raises:
        OutputError: the file cannot be written; nothing is left behind.
        ModelError: the graph without its weights does not fit into protobuf; another kind of model;
            external data outside its folder.
    """
    if not isinstance(model, ir.Model):
        raise ModelError(
            f"save: the model is {kind_of(model)}; wanted onnxq.save(model, path) with an "
            "onnx_ir.Model, such as onnxq.quantize returns."
        )
    refuse(check_external_data(model), "save: the model")  # what is read here ends in the file
    target = check_writable(path)
    old = data_files(target)
    if weight_bytes(model) > _most_inline(model, inline_bytes):
        with (
            temporary(target) as part,
            temporary(target.with_name(f"{target.name}.data")) as data_part,
            as_output_error(target, lambda: saved_bytes(model)),
        ):
            data_target = target.with_name(
                _write_external(model, part, data_part, target, annotations)
            )
            put(data_part, data_target)
            put(part, target)
    else:
        write_atomically(
            target, lambda file: _write_inline(model, file, annotations), lambda: saved_bytes(model)
        )
    remove_old(old, target)
    _invalidate(model, {path for path in old if not path.exists()})


def _most_inline(model: ir.Model, asked: int | None) -> int:
    """Weights that go into the file itself, in bytes."""
    if asked is not None:
        return min(asked, EXTERNAL_BYTES)
    is_decoder = any((value.name or "").startswith(_PAST) for value in model.graph.inputs)
    return DECODER_BYTES if is_decoder else EXTERNAL_BYTES


@without_collector()
def to_bytes(model: ir.Model, annotations: Annotations = Annotations.DROPPED) -> bytes:
    """The file that `save` writes, in memory."""
    if weight_bytes(model) > EXTERNAL_BYTES:
        raise ModelError(
            f"the model has {weight_bytes(model)} bytes of weights, more than fit into one "
            f"message ({EXTERNAL_BYTES}). Save it, and give the file's path."
        )
    file = io.BytesIO()
    _write_inline(model, file, annotations)
    return file.getvalue()


def saved_bytes(model: ir.Model) -> int:
    """Bytes that `save` would write, in one file; no weight is read."""
    message = _message(model, Annotations.DROPPED)
    return len(message.start) + sum(len(h) + (t.nbytes if t else 0) for h, t in message.tensors)


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all initializers but texts; no weight is read."""
    tensors = (v.const_value for g in model.graphs() for v in g.initializers.values())
    return sum(t.nbytes for t in tensors if t is not None and t.dtype != ir.DataType.STRING)


@dataclass
class _Layout:
    """Places tensors one behind the other; a tensor that several values share is stored once."""

    size: int = 0

    def __post_init__(self) -> None:
        self.offsets: dict[int, tuple[int, ir.TensorProtocol]] = {}

    def place(self, tensor: ir.TensorProtocol) -> int:
        if id(tensor) not in self.offsets:
            start = -(-self.size // ALIGNMENT) * ALIGNMENT
            self.offsets[id(tensor)] = (start, tensor)
            self.size = start + tensor.nbytes
        return self.offsets[id(tensor)][0]


def _write_external(
    model: ir.Model, part: Path, data_part: Path, target: Path, annotations: Annotations
) -> str:
    """Writes the weights, then the graph that refers to them by the name that is returned."""
    layout = _Layout()

    def swap(_graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if not is_big(tensor):
            return in_memory(tensor)
        return placeholder(tensor, value.name or "", offset=layout.place(tensor))

    proto = _serialize(model, swap, annotations)
    with data_part.open("xb") as file:
        for offset, tensor in layout.offsets.values():
            file.seek(offset)
            _stream(tensor, file)
    name = data_name(data_part, target)
    for entry in locations(proto):
        entry.value = name
    with part.open("xb") as file:
        file.write(_encode(proto))
    return name


@dataclass(frozen=True, slots=True)
class _Message:
    """A model as one protobuf message, its big weights still to be written."""

    start: bytes
    tensors: list[tuple[bytes, ir.TensorProtocol | None]]


def _write_inline(model: ir.Model, file: BinaryIO, annotations: Annotations) -> None:
    """One protobuf message, written field by field: one big weight in memory at a time."""
    message = _message(model, annotations)
    file.write(message.start)
    for header, tensor in message.tensors:
        file.write(header)
        if tensor is not None:
            _stream(tensor, file)


def _message(model: ir.Model, annotations: Annotations) -> _Message:
    big: dict[str, ir.TensorProtocol] = {}

    def swap(graph: ir.Graph, value: ir.Value, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if graph is not model.graph or not is_big(tensor):
            return in_memory(tensor)
        name = value.name or ""
        big[name] = tensor
        return placeholder(tensor, name)

    proto = _serialize(model, swap, annotations)
    tensors = [(_tensor_header(t, big), big.get(t.name)) for t in proto.graph.initializer]
    del proto.graph.initializer[:]
    graph = _encode(proto.graph)
    proto.ClearField("graph")
    sizes = [len(header) + (t.nbytes if t is not None else 0) for header, t in tensors]
    framed = sum(len(_key(_GRAPH_INITIALIZER, size)) + size for size in sizes)
    return _Message(
        _encode(proto) + _key(_MODEL_GRAPH, len(graph) + framed) + graph,
        [
            (_key(_GRAPH_INITIALIZER, size) + header, tensor)
            for (header, tensor), size in zip(tensors, sizes, strict=True)
        ],
    )


def _serialize(model: ir.Model, swap: Swap, annotations: Annotations) -> onnx.ModelProto:
    """Protobuf of a model; attribute tensors that lie in a file are read, as it stays behind."""
    external = [
        (node, attribute)
        for node in all_nodes(model)
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.TENSOR
        and isinstance(attribute.value, ir.ExternalTensor)
    ]
    try:
        for node, a in external:
            node.attributes[a.name] = ir.AttrTensor(a.name, in_memory(a.as_tensor()))
        proto = serialize(model, swap)
    finally:
        for node, a in external:
            node.attributes[a.name] = a
    _forget_infos(proto.graph)
    if annotations is Annotations.DROPPED:
        drop_annotations(proto)
    return proto


def _forget_infos(graph: onnx.GraphProto) -> None:
    """Drops value_info of initializers, whose tensors say it: tools take what has one for computed.

    quantize_dynamic of onnxruntime.quantization fails on a weight that has one: it looks for it
    under the shape that it had before the tool transposed it.
    """
    for one in proto_graphs(graph):
        held = {tensor.name for tensor in one.initializer}
        computed = [info for info in one.value_info if info.name not in held]
        del one.value_info[:]
        one.value_info.extend(computed)


def _tensor_header(proto: onnx.TensorProto, big: dict[str, ir.TensorProtocol]) -> bytes:
    """A TensorProto: complete for small tensors, up to the key of raw_data for big ones."""
    tensor = big.get(proto.name)
    if tensor is None:
        return _encode(proto)
    del proto.external_data[:]
    proto.ClearField("data_location")
    return _encode(proto) + _key(_TENSOR_RAW_DATA, tensor.nbytes)


def _key(field: int, length: int) -> bytes:
    """Tag and length of a length-delimited protobuf field."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _stream(tensor: ir.TensorProtocol, file: BinaryIO) -> None:
    start = file.tell()
    tofile = getattr(tensor, "tofile", None)
    if tofile is not None:
        try:
            tofile(file)  # external tensors copy inside the kernel
        except OSError as error:
            if error.errno is not None or isinstance(tensor, ir.ExternalTensor):
                raise
            file.seek(start)  # NumPy does not say why it wrote too few bytes; the system does
            file.write(tensor.tobytes())
    else:  # the protocol asks for no more than this
        file.write(tensor.tobytes())
    written = file.tell() - start
    if written != tensor.nbytes:
        raise ModelError(
            f"weight '{tensor.name}': its data has {written} bytes, its type and shape want "
            f"{tensor.nbytes}."
        )


def _encode(proto: onnx.ModelProto | onnx.GraphProto | onnx.TensorProto) -> bytes:
    try:
        return bytes(proto.SerializeToString())
    except (EncodeError, ValueError) as error:
        raise ModelError(
            "the graph without its weights exceeds protobuf's 2 GiB: large constants in the "
            "bodies of If, Loop or Scan. Move them to the main graph."
        ) from error


def _invalidate(model: ir.Model, removed: set[Path]) -> None:
    for graph in model.graphs() if removed else ():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor) and Path(tensor.path) in removed:
                tensor.invalidate()


def data_name(part: Path, target: Path) -> str:
    """Name for a complete data file beside its graph: one that is free, or has the same bytes."""
    crc = 0
    with part.open("rb") as file:
        while piece := file.read(_PIECE):
            crc = zlib.crc32(piece, crc)
    while True:
        path = target.with_name(f"{target.name}.{crc:08x}.data")
        if not path.is_symlink() and not path.exists():
            return path.name
        if (
            not why_no_file(path)
            and not path.is_symlink()
            and filecmp.cmp(part, path, shallow=False)
        ):
            return path.name
        crc = (crc + 1) % _NAMES


def data_files(target: Path) -> set[Path]:
    """Data files beside a graph that the file at its path refers to by such a name.

    Empty where that file is no model: what cannot be read refers to nothing.
    """
    pattern = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{8}}\.data")
    with contextlib.suppress(OSError):
        named = {
            path.name: path for path in target.parent.iterdir() if pattern.fullmatch(path.name)
        }
        if named and not why_no_file(target):  # most have none, and are not read
            return {named[name] for name in _locations(target.read_bytes()) if name in named}
    return set()


def remove_old(old: set[Path], target: Path) -> None:
    """Removes data files of the old graph that the graph at its path does not refer to.

    A link stays, and so does what cannot be removed: the new model is complete without that.
    """
    for path in old - data_files(target) if old else ():
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.lstat().st_mode):
                path.unlink()


def locations(proto: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """Entries that name the data file of an initializer."""
    for graph in proto_graphs(proto.graph):
        for tensor in graph.initializer:
            yield from (entry for entry in tensor.external_data if entry.key == "location")


def _locations(data: bytes) -> set[str]:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        return set()
    return {entry.value for entry in locations(proto)}
