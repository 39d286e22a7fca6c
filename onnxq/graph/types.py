"""Types and ranks of all values: onnx's inference, then, where that knows nothing, one real run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from onnxq.graph.edit import all_values
from onnxq.graph.skeleton import skeleton

RunCallable = Callable[[ir.Model, Sequence[str]], Mapping[str, tuple[ir.DataType, tuple[int, ...]]]]
"""run(model, names): one real run of the model, on any input; (dtype, shape) of each named value."""


def infer_types(model: ir.Model, run: RunCallable | None = None) -> bool:
    """Fills in types and shapes of values, in all bodies; whether any was new.

    Names must be unique in the whole model. What is known stays, unless it contradicts onnx's inference.
    A run (only where a value of the main graph has no type or rank) tells type and rank; its sizes belong
    to one input and are not kept.

    Args:
        model: changed in place; weights are not read.
        run: see RunCallable; None: values may stay unknown.
    """
    changed = _infer(model)
    missing = untyped(model)
    if run is None or not missing:
        return changed
    values = {v.name: v for v in all_values(model.graph)}
    for name, (dtype, shape) in run(model, missing).items():
        value = values.get(name)
        if value is None:
            continue
        value.type = value.type or ir.TensorType(dtype)
        if value.shape is None:
            value.shape = ir.Shape([None] * len(shape))
    if len(untyped(model)) < len(missing):
        _infer(model)  # what follows the values that the run told
        return True
    return changed


def untyped(model: ir.Model) -> list[str]:
    """Names of the main graph's tensors that somebody reads and whose type or rank is not known."""
    return [
        v.name
        for v in all_values(model.graph)
        if v.name
        and (v.type is None or (isinstance(v.type, ir.TensorType) and v.shape is None))
        and (v.uses() or v.is_graph_output())
    ]


def _infer(model: ir.Model) -> bool:
    inferred = onnx.shape_inference.infer_shapes(skeleton(model), data_prop=True)
    values = {v.name: v for graph in model.graphs() for v in all_values(graph)}
    changed = False
    for info in _infos([inferred.graph]):
        value = values.get(info.name)
        if value is not None and info.HasField("type"):
            changed |= _merge(value, info.type)
    return changed


def _infos(graphs: Iterable[onnx.GraphProto]) -> Iterator[onnx.ValueInfoProto]:
    for graph in graphs:
        yield from graph.value_info
        yield from graph.output
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from _infos([attribute.g])
                elif attribute.type == onnx.AttributeProto.GRAPHS:
                    yield from _infos(attribute.graphs)


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
    """The inferred shape, with the known names where it has only a symbol of its own or none."""
    if known is None or len(known) != len(inferred):
        return inferred
    dims = [i if isinstance(i, int) else k for k, i in zip(known, inferred, strict=True)]
    return ir.Shape(dims)
