"""Types and ranks of all values: onnx's inference, then, where that knows nothing, one real run."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx import helper

from onnxq.errors import first_line
from onnxq.graph.edit import all_values
from onnxq.graph.inference import infer_shapes
from onnxq.graph.skeleton import proto_graphs, skeleton
from onnxq.graph.walk import is_read

Dim = int | ir.SymbolicDim | None

RunCallable = Callable[[ir.Model], Mapping[str, tuple[ir.DataType, tuple[int, ...]]]]
"""run(model): one real run of the model, on any input; (dtype, shape) by name of its values."""


@dataclass(frozen=True, slots=True)
class Inference:
    """An attempt to fill in types and shapes.

    Attributes:
        changed: whether any was new.
        failure: what onnx's inference says against the model; empty where it says nothing.
    """

    changed: bool
    failure: str = ""


def infer_types(model: ir.Model) -> Inference:
    """Fills in types and shapes of values, in all bodies, by onnx's inference.

    Names must be unique in the whole model. What is known stays or becomes more exact. Weights are
    not read. Where what the model declares contradicts what onnx infers, onnx is asked again
    without these declarations, as ONNX Runtime goes on with a warning; where it fails for another
    reason, all stays as it is.
    """
    changed = _take_from_weights(model)
    inferred, failure = infer_proto(skeleton(model))
    if inferred is None:
        return Inference(changed, failure)
    values = {v.name: v for graph in model.graphs() for v in all_values(graph)}
    for info in _infos(inferred.graph):
        value = values.get(info.name)
        if value is not None and info.HasField("type"):
            changed |= _merge(value, info.type)
    return Inference(changed, failure)


def infer_proto(model: onnx.ModelProto) -> tuple[onnx.ModelProto | None, str]:
    """(the model with what onnx infers or None, what it says against the model as it is).

    Where onnx contradicts declared types, they are taken away, in place, and it is asked again.
    """
    try:
        return _inferred(model), ""
    except Exception as error:  # C++ errors arrive as InferenceError, RuntimeError, ValueError ...
        failure = first_line(error)
    for graph in proto_graphs(model.graph):
        del graph.value_info[:]
        for output in graph.output:
            output.ClearField("type")
    try:
        return _inferred(model), failure
    except Exception:  # likewise
        return None, failure


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """By onnx's inference, again for as long as it is wrong of a pool with ceil_mode."""
    _copy_where_nothing_is_inferred(model.graph)
    while True:
        inferred = infer_shapes(model)
        known = (*inferred.graph.input, *_infos(inferred.graph))
        if not correct_ceil_mode(model.graph, {info.name: _sizes(info) for info in known}):
            return inferred


def _copy_where_nothing_is_inferred(graph: onnx.GraphProto) -> None:
    """Makes Identity of the nodes that onnx infers nothing of; the graph is for inference only."""
    for one in proto_graphs(graph):
        for node in one.node:
            if node.op_type in never_inferred() and not node.domain and node.input:
                name = node.name
                node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output[:1], name))


@functools.cache
def never_inferred() -> frozenset[str]:
    """Operators of ai.onnx of which onnx's inference says nothing.

    All of them are normalizations, whose result has the type and the sizes of the first input.
    """
    schemas = (schema for schema in onnx.defs.get_all_schemas() if not schema.domain)
    return frozenset(s.name for s in schemas if not s.has_type_and_shape_inference_function)


def _sizes(info: onnx.ValueInfoProto) -> list[int | None]:
    dims = info.type.tensor_type.shape.dim
    return [d.dim_value if d.HasField("dim_value") else None for d in dims]


def _take_from_weights(model: ir.Model) -> bool:
    """Gives initializers the type and shape of their tensor, which a file may state only there."""
    changed = False
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is not None and (value.type is None or value.shape is None):
                value.type = ir.TensorType(tensor.dtype)
                value.shape = ir.Shape(tensor.shape.numpy())
                changed = True
    return changed


def infer_by_run(model: ir.Model, run: RunCallable) -> bool:
    """Fills in types and ranks that inference did not find, from one real run; whether any was new.

    Sizes belong to the one input of that run and are not kept. Does not run where all is known.
    """
    missing = untyped(model)
    if not missing:
        return False
    values = {v.name: v for v in all_values(model.graph)}
    for name, (dtype, shape) in run(model).items():
        value = values.get(name)
        if value is None:
            continue
        value.type = value.type or ir.TensorType(dtype)
        if value.shape is None:
            value.shape = ir.Shape([None] * len(shape))
    infer_types(model)  # what follows the values that the run told
    return len(untyped(model)) < len(missing)


def untyped(model: ir.Model) -> list[str]:
    """Names of the main graph's tensors that somebody reads and whose type or rank is not known."""
    return [
        v.name
        for v in all_values(model.graph)
        if v.name
        and (v.type is None or (isinstance(v.type, ir.TensorType) and v.shape is None))
        and is_read(v)
    ]


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    for one in proto_graphs(graph):
        yield from one.value_info
        yield from one.output


def _merge(value: ir.Value, proto: onnx.TypeProto) -> bool:
    before = (value.type, value.shape)
    inferred_type = ir.serde.deserialize_type_proto_for_type(proto)
    inferred_shape = ir.serde.deserialize_type_proto_for_shape(proto)
    if inferred_type is not None and inferred_type.dtype != ir.DataType.UNDEFINED:
        value.type = inferred_type
    if inferred_shape is not None:
        value.shape = _merged(value.shape, inferred_shape)
    return before != (value.type, value.shape)


def _merged(known: ir.Shape | None, inferred: ir.Shape) -> ir.Shape:
    """The inferred sizes, else what was known; symbols that inference made up are dropped."""
    old = known if known is not None and len(known) == len(inferred) else [None] * len(inferred)
    return ir.Shape([_dim(k, i) for k, i in zip(old, inferred, strict=True)])


def _dim(known: Dim, inferred: Dim) -> Dim:
    if isinstance(inferred, int):
        return inferred
    if isinstance(known, int) or (known is not None and known.value is not None):
        return known
    made_up = inferred is None or inferred.value is None or inferred.value.startswith("unk__")
    return None if made_up else inferred


# --- Pools with ceil_mode for onnx's inference, which counts windows that ONNX leaves out
#
# By ONNX's formula a window that would start in the padding behind the input, or beyond it, is not
# there; onnx's inference counts it where the strides skip elements. ONNX Runtime follows the
# formula.


POOLS = ("AveragePool", "LpPool", "MaxPool")
SPATIAL = 2  # the axis after batch and channels

Sizes = list[int | None]


def correct_ceil_mode(graph: onnx.GraphProto, shapes: Mapping[str, Sizes]) -> bool:
    """Rewrites pools of which onnx's inference told a wrong size; whether any was.

    The new attributes give the right size without ceil_mode; the graph is for inference only. What
    the graph stated of values behind such a pool is removed: it may come from the same inference.
    """
    wrong: set[str] = set()
    _correct(graph, shapes, wrong)
    return bool(wrong)


def _correct(graph: onnx.GraphProto, shapes: Mapping[str, Sizes], wrong: set[str]) -> None:
    """Adds the names of all values whose sizes are not to be relied upon to `wrong`."""
    for node in graph.node:
        before = len(wrong)
        if node.op_type in POOLS and (out := _windows(node, shapes)) is not None:
            sizes = shapes[node.input[0]][SPATIAL:]
            inferred = shapes.get(node.output[0], [])[SPATIAL:]
            if any(None not in (n, m) and n != m for n, m in zip(out, inferred, strict=False)):
                _give_size(node, sizes, out)
                wrong.update(node.output)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _correct(attribute.g, shapes, wrong)
        if len(wrong) > before or wrong.intersection(node.input):
            wrong.update(node.output)
    for info in (*graph.value_info, *graph.output):
        if info.name in wrong:
            info.type.tensor_type.ClearField("shape")


def _windows(node: onnx.NodeProto, shapes: Mapping[str, Sizes]) -> Sizes | None:
    """Numbers of windows, None for unknown ones; None where the node is not one to look at."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    kernel, sizes = given.get("kernel_shape", []), shapes.get(node.input[0], [])[SPATIAL:]
    rank = len(kernel)
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    pads = given.get("pads") or [0] * 2 * rank
    fits = len(sizes) == len(strides) == len(dilations) == rank and len(pads) == 2 * rank
    if not given.get("ceil_mode", 0) or not fits or min(strides, default=0) < 1:
        return None
    mode = given.get("auto_pad", b"NOTSET").decode()
    out: Sizes = []
    for i, (size, taps, stride) in enumerate(zip(sizes, kernel, strides, strict=True)):
        if size is None:
            out.append(None)
            continue
        before, behind = (0, 0) if mode == "VALID" else (pads[i], pads[rank + i])
        if mode.startswith("SAME"):
            behind = (-(-size // stride) - 1) * stride + taps - size
        room = size + before + behind - dilations[i] * (taps - 1) - 1
        last = room // stride
        out.append(last + 1 + (room % stride > 0 and (last + 1) * stride < size + before))
    return out


def _give_size(node: onnx.NodeProto, sizes: Sequence[int | None], out: Sizes) -> None:
    """Attributes with which windows one after the other are as many as `out` says."""
    taps = [max((n or 1) - (m or 1), 0) + 1 for n, m in zip(sizes, out, strict=True)]
    pads = [max((m or 1) - (n or 1), 0) for n, m in zip(sizes, out, strict=True)]
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("kernel_shape", taps))
    node.attribute.append(helper.make_attribute("pads", [0] * len(pads) + pads))
