"""A model's graph apart from its weights, so that ONNX Runtime reads these where they are."""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import ModelError, first_line
from onnxq.graph.passes.equal_values import is_random
from onnxq.graph.skeleton import in_memory, read_attributes

INLINE_BYTES = 1024
"""Smaller weights stay in the protobuf: shape inference reads them there (shapes, axes, scales)."""
IN_MEMORY = "in_memory"
"""Location of the weights that are handed over beside the protobuf."""


@dataclass(frozen=True, slots=True, eq=False)
class HandedOver:
    """A model in two parts.

    Attributes:
        graph: protobuf bytes; weights that are handed over are external data at IN_MEMORY in it.
        weights: {initializer: the array that it is, mapped from disk where the model's is}.
        files: {initializer: (file, offset) that its array is mapped from}.
    """

    graph: bytes
    weights: dict[str, Array]
    files: dict[str, tuple[str, int]]


def hand_over(model: ir.Model, folder: Path | None = None) -> HandedOver:
    """The model without its larger weights, and these.

    Nodes that draw numbers get a seed of their name, so that two models draw the same.
    """
    graph = model.clone()
    for node in filter(is_random, graph.graph.all_nodes()):
        is_dropout = node.op_type == "Dropout"
        takes_seed = not is_dropout or graph.opset_imports.get("", 0) >= 12
        if takes_seed and "seed" not in node.attributes:
            name = str(node.name or node.outputs[0].name)
            seed = zlib.crc32(name.encode()) >> 8  # a float32 holds 24 bits
            attribute = ir.AttrInt64 if is_dropout else ir.AttrFloat32
            node.attributes.add(attribute("seed", seed))
    weights: dict[str, Array] = {}
    files: dict[str, tuple[str, int]] = {}
    for name, value in list(graph.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del graph.graph.initializers[name]  # ONNX Runtime drops it, and then misses it
            continue
        tensor = value.const_value
        if tensor is not None and _lies_in(tensor, folder):
            continue
        array = None if tensor is None else _shared_array(tensor)
        if tensor is None or array is None:
            continue
        weights[name] = array
        if isinstance(tensor, ir.ExternalTensor):
            files[name] = str(Path(tensor.path).absolute()), tensor.offset or 0
        value.const_value = ir.ExternalTensor(
            IN_MEMORY, 0, array.nbytes, tensor.dtype, shape=ir.Shape(array.shape), name=name
        )
    inline_files(graph, folder)
    try:
        return HandedOver(ir.to_proto(graph).SerializeToString(), weights, files)
    except (ValueError, RuntimeError) as error:  # what protobuf and upb raise beyond 2 GB
        raise ModelError(
            f"model '{model.graph.name}' cannot be serialized: {first_line(error)}. Branches of If "
            "that own more than 2 GB of weights cannot be run; move these to the main graph."
        ) from error


def _shared_array(tensor: ir.TensorProtocol) -> Array | None:
    """The array that ONNX Runtime is to read where it is; None: the tensor goes into the protobuf.

    The protobuf takes what is small, and what NumPy has no type for (text, bfloat16, float8, int4).
    """
    if tensor.dtype == ir.DataType.STRING or tensor.dtype.bitwidth < 8:
        return None
    if tensor.nbytes < INLINE_BYTES:
        return None
    array = np.ascontiguousarray(tensor.numpy())
    return array if array.dtype.type.__module__ == "numpy" else None


def folder_of_weights(model: ir.Model) -> Path | None:
    """The folder whose files hold most of a model's weights; None: no file does."""
    found: dict[Path, int] = {}
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            folder = Path(tensor.path).parent.absolute()
            found[folder] = found.get(folder, 0) + tensor.nbytes
    return max(found, key=lambda folder: found[folder], default=None)


def _lies_in(tensor: ir.TensorProtocol, folder: Path | None) -> bool:
    """Whether it is in a file of that folder, under the name by which the graph refers to it."""
    if folder is None or not isinstance(tensor, ir.ExternalTensor):
        return False
    return (folder / tensor.location).is_file() and Path(tensor.path).parent.absolute() == folder


def inline_files(model: ir.Model, folder: Path | None = None) -> None:
    """Reads weights in files, but those of the folder: ONNX Runtime finds none from bytes."""
    for graph in model.graphs():
        own = folder if graph is model.graph else None
        for value in graph.initializers.values():
            tensor = value.const_value
            is_handed = isinstance(tensor, ir.ExternalTensor) and tensor.location == IN_MEMORY
            if tensor is not None and not is_handed and not _lies_in(tensor, own):
                value.const_value = in_memory(tensor)
    read_attributes(model)
