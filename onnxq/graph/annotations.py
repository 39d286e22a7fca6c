"""Annotations of a file, which say nothing of what it computes: inferred types, exporters' notes.

value_info      type and shape of a tensor: left out where inference finds them again
metadata, doc   of nodes and tensors: where in the source code they come from
onnxq.*         metadata that onnxq reads: stays, as do the model's own metadata and doc string
"""

import enum
from collections.abc import Callable, Iterable

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError

from onnxq.graph.inference import infer_shapes
from onnxq.graph.skeleton import proto_graphs, skeleton
from onnxq.operator.nodes import ONNX_DOMAINS
from onnxq.operator.site import MICROSOFT

OWN_PREFIX = "onnxq."
"""Domain whose types onnx does not infer, but ONNX Runtime does."""


class Annotations(enum.Enum):
    """Fate of a model's annotations when it is written."""

    DROPPED = "dropped"
    KEPT = "kept"


def drop_annotations(model: onnx.ModelProto) -> None:
    """Drops, in all bodies, what inference finds again and what names source code.

    A value_info stays where it says more than inference does: ONNX Runtime's fusions depend on
    ranks and sizes.
    """
    graphs = list(proto_graphs(model.graph))
    known = [list(graph.value_info) for graph in graphs]
    for graph, infos in zip(graphs, known, strict=True):
        _drop_notes(graph)
        seeds = _results(graph, lambda domain: domain not in ONNX_DOMAINS)
        _set_infos(graph, [info for info in infos if info.name in seeds])
    try:
        inferred = infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError, EncodeError, DecodeError):
        for graph, infos in zip(graphs, known, strict=True):
            _set_infos(graph, infos)  # ONNX Runtime may read more of it than onnx does
        return
    for graph, found, infos in zip(graphs, proto_graphs(inferred.graph), known, strict=True):
        foreign = _results(graph, lambda domain: domain not in (*ONNX_DOMAINS, MICROSOFT))
        of_runtime = _results(graph, lambda domain: domain == MICROSOFT)
        again = {info.name: info for info in found.value_info}
        kept = [
            info
            for info in infos
            if info.metadata_props
            or info.name in foreign
            or not (info.name in of_runtime or _is_implied(info, again.get(info.name)))
        ]
        _set_infos(graph, kept)


def as_written(model: ir.Model) -> ir.Model:
    """A copy with the inferred types that its file has: ONNX Runtime fuses by those it is told."""
    proto, copy = skeleton(model), model.clone()
    drop_annotations(proto)
    written = {info.name for graph in proto_graphs(proto.graph) for info in graph.value_info}
    for y in (y for node in copy.graph.all_nodes() for y in node.outputs):
        if y.name not in written and not y.is_graph_output():
            y.type = y.shape = None
    return copy


def _drop_notes(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        node.ClearField("doc_string")
        _keep_own(node)
    for tensor in graph.initializer:
        tensor.ClearField("doc_string")
        _keep_own(tensor)
    for info in (*graph.value_info, *graph.input, *graph.output):
        _keep_own(info)


def _keep_own(noted: onnx.NodeProto | onnx.TensorProto | onnx.ValueInfoProto) -> None:
    own = [entry for entry in noted.metadata_props if entry.key.startswith(OWN_PREFIX)]
    del noted.metadata_props[:]
    noted.metadata_props.extend(own)


def _results(graph: onnx.GraphProto, has: Callable[[str], bool]) -> set[str]:
    """Names of what the nodes of such domains give."""
    return {name for node in graph.node if has(node.domain) for name in node.output}


def _is_implied(info: onnx.ValueInfoProto, inferred: onnx.ValueInfoProto | None) -> bool:
    """Whether inference says as much: the type, the rank, and every size that is a number."""
    if inferred is None or info.type.WhichOneof("value") != "tensor_type":
        return inferred is not None and inferred.type == info.type
    mine, found = info.type.tensor_type, inferred.type.tensor_type
    if mine.elem_type != found.elem_type:
        return False
    if not mine.HasField("shape"):
        return True
    if not found.HasField("shape") or len(mine.shape.dim) != len(found.shape.dim):
        return False
    pairs = zip(mine.shape.dim, found.shape.dim, strict=True)
    return all(a.dim_value == b.dim_value for a, b in pairs if a.HasField("dim_value"))


def _set_infos(graph: onnx.GraphProto, infos: Iterable[onnx.ValueInfoProto]) -> None:
    chosen = list(infos)
    del graph.value_info[:]
    graph.value_info.extend(chosen)
