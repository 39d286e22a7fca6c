"""onnx's shape inference with data propagated, where that ends: it copies each element.

onnx carries the elements of vectors along (0.2 us and 160 bytes each), those of which it knows the
length alone too: Range(0, 10^8) -> Cast takes 16 GB, and so do 26 Concats of themselves. So the
lengths of the vectors that it would carry are looked at first:

    all known, and few elements      data is propagated here
    one is long                      inference goes without that: only a computed shape is lost
    one is not known before          data is propagated in the child process, within bounds
"""

import enum
import functools
import math
from collections.abc import Iterator, Mapping

import onnx

from onnxq.core.limits import current_limits
from onnxq.graph.skeleton import proto_graphs
from onnxq.jobs import child
from onnxq.jobs.child_main import ChildRequest, SentArray

MOST = 1 << 20
"""Elements of a vector, at most."""
MOST_IN_ALL = 1 << 22
MOST_SIZES = 512
"""Elements of a computed shape, at most: so many axes a tensor of it has."""
RANK = 8
"""Axes of a tensor, as a rule."""
OF_SHAPES = frozenset(("Shape", "Size"))
"""Operators that read no data."""
WHOLE = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
"""Types of constants whose elements onnx reads."""
SECONDS = 20.0
MEMORY_BYTES = 2 << 30


class _Cost(enum.Enum):
    SMALL = "small"
    LARGE = "large"
    UNKNOWN = "unknown"


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with types and shapes that onnx infers."""
    if _cost(model, _lengths(model)) is _Cost.SMALL:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    typed = onnx.shape_inference.infer_shapes(model, data_prop=False)
    cost = _cost(model, _lengths(typed))
    if cost is _Cost.SMALL:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    return typed if cost is _Cost.LARGE else _within_bounds(model, typed)


def _within_bounds(model: onnx.ModelProto, typed: onnx.ModelProto) -> onnx.ModelProto:
    """Propagates data in the child process; where that does not end, what is known without it."""
    bounds, data = current_limits(), model.SerializeToString()
    free = bounds.bytes_now
    request = ChildRequest(
        "infer",
        child.new_number(),
        min(bounds.seconds, SECONDS),
        MEMORY_BYTES if free is None else min(free, MEMORY_BYTES),
        parts=(SentArray("", "|u1", (len(data),)),),
    )
    try:
        reply = child.ask(request, [data])
    except child.NoChildError:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (child.DiedError, child.OverTimeError):
        return typed
    if reply.is_memory:
        return typed
    if reply.error:
        raise onnx.shape_inference.InferenceError(reply.error)
    return onnx.load_model_from_string(reply.data)


@functools.cache
def _propagating() -> frozenset[str]:
    """Operators of ai.onnx whose data onnx carries along."""
    schemas = (schema for schema in onnx.defs.get_all_schemas() if not schema.domain)
    return frozenset(s.name for s in schemas if s.has_data_propagation_function)


def _lengths(model: onnx.ModelProto) -> dict[str, int]:
    """Elements of the vectors and scalars of known length; 0 for matrices and beyond."""
    found: dict[str, int] = {}
    for graph in proto_graphs(model.graph):
        for info in (*graph.input, *graph.value_info, *graph.output):
            tensor = info.type.tensor_type
            dims = tensor.shape.dim
            if len(dims) > 1:
                found[info.name] = 0
            elif tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
                found[info.name] = math.prod(dim.dim_value for dim in dims)
        found |= {t.name: _length(t) for t in graph.initializer}
    return found


def _length(tensor: onnx.TensorProto) -> int:
    return math.prod(tensor.dims) if len(tensor.dims) < 2 else 0


def _cost(model: onnx.ModelProto, lengths: Mapping[str, int]) -> _Cost:
    """Whether the data that onnx would carry is small."""
    sizes: dict[str, int] = {}  # of computed shapes: at most so many elements
    total, is_unknown = 0, False
    for graph in proto_graphs(model.graph):
        sizes |= {
            tensor.name: _length(tensor)
            for tensor in graph.initializer
            if tensor.data_type in WHOLE and len(tensor.dims) < 2
        }
        for node in graph.node:
            if node.op_type == "Constant":
                sizes |= dict.fromkeys(node.output, max(_constants(node), default=1))
            if node.domain or node.op_type not in _propagating():
                continue
            sizes |= _computed(node, sizes)
            read = () if node.op_type in OF_SHAPES else node.input
            for name in filter(None, (*read, *node.output)):
                length = sizes.get(name, lengths.get(name))
                is_unknown |= length is None
                total += length or 0
                if (length or 0) > (MOST_SIZES if name in sizes else MOST):
                    return _Cost.LARGE
    if total > MOST_IN_ALL:
        return _Cost.LARGE
    return _Cost.UNKNOWN if is_unknown else _Cost.SMALL


def _computed(node: onnx.NodeProto, sizes: Mapping[str, int]) -> dict[str, int]:
    """Elements of a computed shape, at most; empty where it is made of other things."""
    if node.op_type in OF_SHAPES:
        return {node.output[0]: RANK}
    read = [sizes.get(name) for name in node.input if name]
    known = [n for n in read if n is not None]
    if len(known) < len(read) or not known:
        return {}
    if node.op_type == "Concat":
        return {node.output[0]: sum(known)}
    return {node.output[0]: known[-1] if node.op_type == "Gather" else max(known)}


def _constants(node: onnx.NodeProto) -> Iterator[int]:
    for attribute in node.attribute:
        yield math.prod(attribute.t.dims) if attribute.HasField("t") else len(attribute.ints)
