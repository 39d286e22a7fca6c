"""Convs that ONNX Runtime's optimizer fused are taken apart, as the exporter wrote them."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of, new_constant
from onnxq.operator.nodes import find_input
from onnxq.operator.site import MICROSOFT

FUSED = "FusedConv"
_SUM = 3  # slot of what is added ahead of the activation
_NAMED = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
_PLAIN = ("Relu", "Sigmoid", "Tanh")
_CLIP_PARAMS = 2


class TakeFusedConvsApart(ir.passes.InPlacePass):
    """FusedConv(x, w, b, z; f) = f(Conv(x, w, b) + z); all graphs. Unknown f keep their nodes."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        found = [node for node in all_nodes(model) if _can_be_apart(node)]
        if found:
            names = FreeNames(model)
            for node in found:
                _take_apart(node, names)
        return ir.passes.PassResult(model, bool(found))


def _can_be_apart(node: ir.Node) -> bool:
    if (node.domain, node.op_type) != (MICROSOFT, FUSED):
        return False
    kind, params = _activation(node)
    if kind == "Clip":
        return len(params) == _CLIP_PARAMS
    return kind in ("", *_PLAIN) or len(params) == len(_NAMED.get(kind, ())) > 0


def _activation(node: ir.Node) -> tuple[str, Sequence[float]]:
    params = node.attributes.get("activation_params")
    return node.attributes.get_string(
        "activation", ""
    ), [] if params is None else params.as_floats()


def _take_apart(node: ir.Node, names: FreeNames) -> None:
    graph, stem, y = graph_of(node), str(node.name), node.outputs[0]
    kind, params = _activation(node)
    kept = [a for name, a in node.attributes.items() if not name.startswith("activation")]
    made = [ir.Node("", "Conv", node.inputs[:_SUM], kept, name=names.node(f"{stem}_conv"))]
    if (z := find_input(node, _SUM)) is not None:
        made.append(ir.node("Add", [made[-1].outputs[0], z], name=names.node(f"{stem}_add")))
    if kind:
        x, attributes = made[-1].outputs[0], dict(zip(_NAMED.get(kind, ()), params, strict=False))
        ends = params if kind == "Clip" else ()
        limits = [
            new_constant(node, names.value(f"{stem}_end"), np.asarray(end, np.float32))
            for end in ends
        ]
        act = ir.node(kind, [x, *limits], attributes, name=names.node(f"{stem}_{kind.lower()}"))
        made.append(act)
    for new in made:
        (result,) = new.outputs
        result.name = names.value(f"{new.name}_output")
        result.type, result.shape = y.type, y.shape
    graph.insert_before(node, made)
    last = made[-1].outputs[0]
    y.replace_all_uses_with(last, replace_graph_outputs=True)
    last.name, y.name = y.name, None
    graph.remove(node, safe=True)
