"""Sizes of all values of a model for inputs of given shapes, by onnx's inference; nothing runs."""

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from onnxq.errors import ShapeError
from onnxq.graph.skeleton import proto_graphs, skeleton
from onnxq.graph.types import infer_proto

Sizes = tuple[int, ...]
"""Shape of a value with nothing left open."""


def sizes_of(model: ir.Model, inputs: Mapping[str, Sizes]) -> dict[str, Sizes]:
    """Sizes of the values of a canonical model: {name: sizes}; values not known are left out.

    Args:
        model: stays as it is; names are unique in the whole model.
        inputs: input name -> its shape; counts where the model leaves a size open. Inputs that are
            not named keep what the model declares.
    """
    proto = skeleton(model)
    for value in proto.graph.input:
        if value.name in inputs:
            _fix(value, inputs[value.name])
    _forget_open(proto.graph)
    inferred, _ = infer_proto(proto)
    found = {} if inferred is None else dict(_known(inferred.graph))
    weights = {
        name: tuple(int(size) for size in value.const_value.shape.numpy())
        for graph in model.graphs()
        for name, value in graph.initializers.items()
        if value.const_value is not None
    }
    return found | weights


def _fix(value: onnx.ValueInfoProto, sizes: Sizes) -> None:
    """Gives an input these sizes in place of those that the model leaves open."""
    tensor = value.type.tensor_type
    rank = len(tensor.shape.dim)
    if tensor.HasField("shape") and rank != len(sizes):
        raise ShapeError(
            f"input '{value.name}' has {rank} axes; got sizes {sizes}. Give one for each axis."
        )
    fixed = _dims(tensor) or [None] * len(sizes)
    del tensor.shape.dim[:]
    for declared, size in zip(fixed, sizes, strict=True):
        tensor.shape.dim.add().dim_value = size if declared is None else declared


def _forget_open(graph: onnx.GraphProto) -> None:
    """Takes away declared shapes with open sizes: onnx would keep the name of an open size."""
    for one in proto_graphs(graph):
        outputs = [value for value in one.output if _sizes(value) is None]
        for value in outputs:
            value.type.tensor_type.ClearField("shape")
        kept = [value for value in one.value_info if _sizes(value) is not None]
        del one.value_info[:]
        one.value_info.extend(kept)


def _known(graph: onnx.GraphProto) -> Iterator[tuple[str, Sizes]]:
    for one in proto_graphs(graph):
        for value in (*one.input, *one.value_info, *one.output):
            sizes = _sizes(value)
            if sizes is not None:
                yield value.name, sizes


def _sizes(value: onnx.ValueInfoProto) -> Sizes | None:
    """The sizes of a tensor; None where it has open ones, or is none."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        return None
    dims = _dims(tensor)
    known = tuple(dim for dim in dims if dim is not None)
    return known if len(known) == len(dims) else None


def _dims(tensor: onnx.TypeProto.Tensor) -> list[int | None]:
    """Sizes of the axes, None for an open one; older exporters write -1 for that."""
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
        for dim in tensor.shape.dim
    ]
