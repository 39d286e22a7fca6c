"""The conversion to float16 that onnxruntime.transformers has, as a function of models.

It puts a Cast wherever float32 and float16 meet, in bodies, too, and rounds constants; what is kept
decides who calls it. Weights pass a protobuf, so that models beyond 2 GB are refused.
"""

import contextlib
import io
from collections.abc import Collection, Iterable, Iterator

import onnx
import onnx_ir as ir

from onnxq.errors import UnsupportedError
from onnxq.graph.edit import bypass, graph_of
from onnxq.graph.saving import saved_bytes
from onnxq.graph.walk import bodies, node_name
from onnxq.ort.handing_over import inline_files

MOST_BYTES = 1 << 31  # of a protobuf
FATAL = "ONNX Runtime crashes on it in float16"


def as_float16(model: ir.Model, kept: Collection[str], *, keeps_io: bool) -> ir.Model:
    """The model with float16 in place of float32, but in the nodes of these names."""
    if saved_bytes(model) >= MOST_BYTES:
        raise UnsupportedError(
            "half: the model has more than 2 GB of weights, which the conversion cannot take. "
            "Store its weights group-wise first: --weight-bits 4."
        )
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    copy = model.clone()
    inline_files(copy)
    proto = ir.to_proto(copy)
    # a weight whose type stands there, too, would be rounded for the nodes that are kept
    constants = {tensor.name for tensor in proto.graph.initializer}
    typed = [info for info in proto.graph.value_info if info.name not in constants]
    proto.graph.ClearField("value_info")
    proto.graph.value_info.extend(typed)
    with contextlib.redirect_stdout(io.StringIO()):
        made = convert_float_to_float16(
            proto,
            keep_io_types=keeps_io,
            op_block_list=[t for t in DEFAULT_OP_BLOCK_LIST if t not in ("Min", "Max")],
            node_block_list=[*_computing(n for n in model.graph.all_nodes() if n.name in kept)],
        )
    _settle_casts(made.graph)
    result: ir.Model = ir.from_proto(made)
    for graph in result.graphs():
        graph.sort()  # its Cast nodes stand at the end
    _keep_between_kept(result)
    return result


def _computing(nodes: Iterable[ir.Node]) -> Iterator[str]:
    """Names of the nodes; in place of one with bodies, which is converted in part, of theirs."""
    for node in nodes:
        held = bodies(node)
        yield from _computing(n for body in held for n in body) if held else [node_name(node)]


def _settle_casts(graph: onnx.GraphProto) -> None:
    """Puts each Cast once where its input is computed: the conversion leaves all outside bodies.

    It writes one for each node that is kept, of one name where they read the same.
    """
    casts, others = ([n for n in graph.node if (n.op_type == "Cast") is c] for c in (True, False))
    del graph.node[:]
    graph.node.extend(others)
    homes = {y: body for body in _bodies(graph) for node in body.node for y in node.output}
    homes |= {x.name: body for body in _bodies(graph) for x in (*body.input, *body.initializer)}
    for node in {(node.input[0], node.output[0]): node for node in casts}.values():
        home = homes[node.output[0]] = homes.get(node.input[0], graph)
        home.node.append(node)


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for body in (g for n in graph.node for a in n.attribute for g in (a.g, *a.graphs)):
        yield body
        yield from _bodies(body)


def _keep_between_kept(model: ir.Model) -> None:
    """Float32 numbers between two float32 nodes stay so: the conversion rounds them in between."""
    for node in list(model.graph.all_nodes()):
        read = node.inputs[0] if _casts_to(node, ir.DataType.FLOAT) else None
        back = None if read is None else read.producer()
        if back is None or not _casts_to(back, ir.DataType.FLOAT16):
            continue
        x = back.inputs[0]
        if x is not None and x.dtype == ir.DataType.FLOAT:
            node.replace_input_with(0, x)
            bypass(node)
            if not back.outputs[0].uses() and not back.outputs[0].is_graph_output():
                graph_of(back).remove(back, safe=True)


def _casts_to(node: ir.Node, dtype: ir.DataType) -> bool:
    to = node.attributes.get_int("to", 0)
    return node.op_type == "Cast" and to == dtype.value and node.inputs[0] is not None


def is_fatal(node: ir.Node) -> bool:
    """Whether ONNX Runtime 1.31 crashes on a node in float16: it moves the batch before a MatMul.

    Its fusion into FusedMatMul's transBatchA has lost the Cast that it put between them.
    """
    perm = node.attributes.get_ints("perm", ()) if node.op_type == "Transpose" else ()
    rank = len(perm)
    rest = [axis for axis in perm if axis]
    moves = rank > 2 and perm[0] != 0 and rest == sorted(rest) and 0 in perm[rank - 2 :]
    return moves and any(use.node.op_type == "MatMul" for use in node.outputs[0].uses())
