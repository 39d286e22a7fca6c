"""Models from and into files: checked first, memory-mapped, written atomically."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from onnxq.core.atomic import check_writable, write_atomically
from onnxq.core.collector import without_collector
from onnxq.core.regular import why_no_file
from onnxq.errors import ModelError, first_line, kind_of, nearest
from onnxq.graph.edit import use_short_domain
from onnxq.graph.given_file import given_size, note_file
from onnxq.graph.hashing import model_hash
from onnxq.graph.saving import save
from onnxq.graph.skeleton import proto_graphs
from onnxq.graph.untrusted.check_model import check_model, refuse
from onnxq.graph.untrusted.external_data import check_folder_is_known, set_folder
from onnxq.graph.untrusted.order import MAX_DEPTH, check_depth, out_of_order
from onnxq.graph.untrusted.problem import DAMAGED, WHERE_KEY, label
from onnxq.graph.untrusted.scopes import scopes
from onnxq.graph.weights import hold_as_arrays

__all__ = ["check_writable", "load", "model_hash", "refuse_folder", "save", "write_atomically"]


class ExportedProgram(Protocol):
    """The ONNXProgram that torch.onnx.export(dynamo=True) returns."""

    @property
    def model(self) -> ir.Model:
        """The ONNX model in it."""


def load(model: str | Path | onnx.ModelProto | ir.Model | ExportedProgram) -> ir.Model:
    """The model as onnx_ir.Model, checked; external data is memory-mapped, never read here.

    Args:
        model: a path, a ModelProto (its tensors are shared, not copied), or an ir.Model, which
            comes back as it is; if it declares sizes below zero, a copy in which they are dynamic.
            Torch's ONNXProgram stands for the model that it holds.
    Raises:
        ModelError: another kind of argument, no such file, not a model, or a model with one of the
            problems of `graph.untrusted`, external data outside its folder among them; or an
            ir.Model whose nodes are not in topological order (those of a file or a ModelProto are
            brought into it).
    """
    held = getattr(model, "model", None)
    model = held if isinstance(held, ir.Model) else model
    if isinstance(model, ir.Model):
        check_model(model, "the model")
        return without_negative_sizes(model)
    with without_collector():
        if isinstance(model, onnx.ModelProto):
            return _from_proto(model, "the ModelProto", None)
        if not isinstance(model, str | Path):
            raise ModelError(
                f"the model is {kind_of(model)}; wanted the path of an ONNX file, an "
                "onnx.ModelProto, an onnx_ir.Model or torch's ONNXProgram. A PyTorch module "
                "becomes one by onnxq.export(module, example_inputs)."
            )
        path = Path(model).absolute()
        found = _from_proto(_parse(path), f"'{path}'", path.parent)
        note_file(found, path)
        return found


def size_bytes(path: Path) -> int:
    """Bytes of an ONNX file and of the external data files that it names."""
    return given_size(load(path))


def refuse_folder(path: Path) -> None:
    """Passes a path that is no folder.

    Raises:
        ModelError: it is one.
    """
    if path.is_dir():
        raise ModelError(f"'{path}' is a folder; give the .onnx file inside.")


def _parse(path: Path) -> onnx.ModelProto:
    if why := why_no_file(path):
        if not os.path.lexists(path):  # that takes a name of any length, as Path.exists does not
            siblings = [p.name for p in path.parent.glob("*.onnx")]
            raise ModelError(f"'{path}': no such file.{nearest(path.name, siblings)}")
        refuse_folder(path)
        raise ModelError(f"'{path}' cannot be read: {why}. Give the .onnx file.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror}.") from error
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"'{path}' cannot be read: {why_unreadable(data)}") from error
    if not proto.HasField("graph"):  # many files parse as an unknown message
        raise ModelError(f"'{path}' cannot be read: {why_unreadable(data)}")
    return proto


def _sparse_constants(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the sparse initializers, and of what Constant nodes make of sparse values."""
    for one in proto_graphs(graph):
        yield from (tensor.values.name for tensor in one.sparse_initializer)
        for node in one.node:
            if any(attribute.HasField("sparse_tensor") for attribute in node.attribute):
                yield node.output[0]


def _from_proto(proto: onnx.ModelProto, where: str, folder: Path | None) -> ir.Model:
    sparse = next(_sparse_constants(proto.graph), None)
    if sparse is not None:
        raise ModelError(
            f"{where}: constant '{sparse}' is sparse; only dense weights are supported. "
            "Make it dense (numpy, then onnx.numpy_helper.from_array) first."
        )
    for value in proto.graph.output:
        kinds = (value.type, value.type.sequence_type.elem_type)
        if any(kind.HasField("map_type") for kind in kinds):
            raise ModelError(
                f"{where}: output '{value.name}' holds maps, which onnxq does not read. Leave the "
                "ZipMap out: options={'zipmap': False} of skl2onnx."
            )
    try:
        model = ir.from_proto(proto)
    except RecursionError as error:
        raise ModelError(
            f"{where}: its bodies (If, Loop, Scan ...) lie too deep in each other; onnxq reads "
            f"{MAX_DEPTH}. Join the conditions, or leave the inner ones to a model of their own."
        ) from error
    except Exception as error:  # onnx_ir has no common error for what a protobuf can hold
        raise ModelError(f"{where} is not a valid ONNX model: {_root(error)}. {DAMAGED}") from error
    if len(model.functions) < len(proto.functions):
        raise ModelError(f"{where}: two functions have one name. {DAMAGED}")
    model.meta[WHERE_KEY] = where
    use_short_domain(model)
    if folder is not None:
        set_folder(model, folder)
    refuse(check_depth(model), where)  # ahead of what walks into bodies
    if folder is None:
        refuse(check_folder_is_known(model), where)
    _sort(model, where)
    make_negative_sizes_dynamic(model)
    check_model(model, where)
    if folder is not None:  # nobody else holds a file's protobuf
        hold_as_arrays(model)
    return model


def _root(error: BaseException) -> str:
    """The first line of the error that all began with."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before  # onnx_ir can fail while it reports
    return first_line(error)


def _sort(model: ir.Model, where: str) -> None:
    """Brings nodes into topological order, which onnx_ir needs for copies.

    ONNX Runtime's quantizer writes others, for ONNX Runtime itself sorts what it loads.
    """
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        node = out_of_order(graph)
        if node is None:
            continue
        try:
            graph.sort()
        except ValueError as error:
            raise ModelError(
                f"{where} is not a valid ONNX model: its nodes read each other in a circle, "
                f"{label(node)} among or behind them. Export it again."
            ) from error


# --- Why a file is not a model: words for the person who has to find the right file


# ModelProto's field numbers and wire types (onnx.proto): 0 varint, 2 length-delimited
_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_LENGTH_DELIMITED = 2
_SAMPLE_BYTES = 512


def why_unreadable(data: bytes) -> str:
    """A sentence about bytes that do not parse as an ONNX ModelProto."""
    if not data:
        return "the file is empty."
    if data.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer; run 'git lfs pull' to get the model itself."
    if data.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        return (
            "it is a file of NumPy or PyTorch (.npz, .npy, .pt), not an ONNX model. The model "
            "comes first, the samples behind it."
        )
    if _is_text(data[:_SAMPLE_BYTES]):
        return "it is a text file, not an ONNX model (binary protobuf)."
    wanted = _wanted_bytes(data)
    if wanted > len(data):
        return (
            f"the file is truncated: it has {len(data)} bytes, its header promises at least "
            f"{wanted}. Copy or download it again."
        )
    if wanted == len(data):
        return (
            "it looks like an ONNX model and is damaged inside, or If, Loop and Scan lie deeper in "
            "each other than protobuf reads (some 30). Export it again."
        )
    return "it is not an ONNX model (binary protobuf)."


def _is_text(sample: bytes) -> bool:
    try:
        text = sample.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(sample) - 4:  # a character cut at the end of the sample is no proof
            return False
        text = sample[: error.start].decode("utf-8")
    return bool(text) and all(c.isprintable() or c in "\n\r\t" for c in text)


def _wanted_bytes(data: bytes) -> int:
    """The size that the top-level fields add up to; 0 where they are not those of a ModelProto."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        if _MODEL_FIELDS.get(tag >> 3) != tag & 7:
            return 0
        length, position = _varint(data, position)
        if tag & 7 == _LENGTH_DELIMITED:
            position += length
    return position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A protobuf varint and the position behind it; one past the end where the data ends inside."""
    value = shift = 0
    while position < len(data):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data) + 1


# --- Sizes below zero, which are dynamic
#
# Older exporters write -1 for an axis of any size. ONNX Runtime reads it so, and so does whatever
# passed the model checks.


def without_negative_sizes(model: ir.Model) -> ir.Model:
    """The model where no declared size is below zero; else a copy, these sizes dynamic."""
    if not any(_is_negative(value) for value in _values(model)):
        return model
    copy = model.clone()
    make_negative_sizes_dynamic(copy)
    return copy


def make_negative_sizes_dynamic(model: ir.Model) -> None:
    """Declares each size below zero as not known, in place."""
    for value in _values(model):
        if value.shape is not None and _is_negative(value):
            sizes = [None if isinstance(n, int) and n < 0 else n for n in value.shape]
            value.shape = ir.Shape(sizes)


def _is_negative(value: ir.Value) -> bool:
    return value.shape is not None and any(isinstance(n, int) and n < 0 for n in value.shape)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Values that declare a shape of their own: no initializer, whose tensor has one."""
    for scope in scopes(model):
        yield from scope.graph.inputs
        yield from scope.graph.outputs
        for node in scope.graph:
            yield from node.outputs
