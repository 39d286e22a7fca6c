"""Layers whose weight alone is trained, in blocks: what a QConfigDynamic says of a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from onnxq.catalog import has_dynamic_form
from onnxq.graph.walk import node_name
from onnxq.pytorch.modules.parametrized_layer import weighted_layer
from onnxq.pytorch.nn.qat.linear_in_blocks import rounding_part
from onnxq.pytorch.train.annotations import AnnotatedWeight
from onnxq.qconfig import FakeQuantSpec, QConfigDynamic

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    from torch import fx

    from onnxq.pytorch.insertion.view import View


def weights_in_blocks(view: View) -> tuple[tuple[AnnotatedWeight, ...], Mapping[str, str]]:
    """Weights that are trained in blocks, in graph order; ONNX node -> why another stays float.

    Args:
        view: of the program; nodes with a QConfigDynamic are in float there.

    Raises:
        QConfigError: a weight that blocks are asked for has another type or one scale.
    """
    annotated: dict[str, AnnotatedWeight] = {}  # path -> weight; a layer may be called twice
    reasons: dict[str, str] = {}
    for node in view.nodes:
        entry = view.prepared.qconfig.entry_for_node(node_name(node), node.op_type)
        if not isinstance(entry, QConfigDynamic) or not has_dynamic_form(node):
            continue
        found = _annotated(view, node, entry)
        if isinstance(found, str):
            reasons[node_name(node)] = found
        else:
            annotated.setdefault(found.path, found)
    return tuple(annotated.values()), reasons


def _annotated(view: View, node: ir.Node, entry: QConfigDynamic) -> AnnotatedWeight | str:
    """The weight of a node, or why it is not trained."""
    if not isinstance(entry.weight, FakeQuantSpec):
        return (
            f"its QConfigDynamic has the observer {entry.weight}, which does not round: it is not "
            "trained. Quantize it afterwards, or give it a FakeQuantSpec and a block size"
        )
    if entry.block_size is None:
        return "weights alone are trained in blocks; give its QConfigDynamic a block size"
    for value in _results(node):
        for made in view.names.nodes(value):
            layer = _linear(view.traced, made)
            if layer is not None:
                part = rounding_part(entry, node_name(node))
                return AnnotatedWeight(
                    made.name, layer, None, node_name(node), part, entry.block_size
                )
    return f"weights of linear layers are trained in blocks; this {node.op_type} is no call of one"


def _results(node: ir.Node) -> list[ir.Value]:
    """Results of the node, and of its one reader with a constant: the bias of a layer."""
    found = list(node.outputs)
    readers = [use.node for value in found for use in value.uses()]
    if len(readers) != 1 or not any(v and v.is_initializer() for v in readers[0].inputs):
        return found
    return [*found, *readers[0].outputs]


def _linear(traced: fx.GraphModule, made: fx.Node) -> str | None:
    """Path of the linear layer that a node calls; behind it, batch norm may be folded in ONNX."""
    for node in (made, *made.all_input_nodes[:1]):
        found = weighted_layer(traced, node)
        if found is not None:
            return found[0] if isinstance(found[1], nn.Linear) else None
    return None
