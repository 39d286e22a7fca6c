"""Sum and normalization that ONNX Runtime's tools made one node of become two again."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnxq.graph.edit import FreeNames, all_nodes, graph_of
from onnxq.graph.origins import hand_on
from onnxq.graph.passes.raise_opset import raise_opset
from onnxq.graph.walk import is_read
from onnxq.operator.nodes import find_input, has_input, input_at

_DOMAIN = "com.microsoft"
_EPSILON = 1e-12  # the default of both skip operators
_SUM = 3  # output slot: x + skip + bias, which the next residual reads


@dataclass(frozen=True, slots=True)
class _Norm:
    """The normalization that is left of a skip operator without its sum.

    Attributes:
        op_type: of ai.onnx.
        opset: its first.
        inputs: slots of gamma, and of beta, where it has one.
        bias: slot of the vector that is added, too.
    """

    op_type: str
    opset: int
    inputs: tuple[int, ...]
    bias: int


_NORMS = {
    "SkipLayerNormalization": _Norm("LayerNormalization", 17, (2, 3), 4),
    "SkipSimplifiedLayerNormalization": _Norm("RMSNormalization", 23, (2,), 3),
}


class TakeSkipNormsApart(ir.passes.InPlacePass):
    """SkipLayerNormalization(x, skip, gamma, beta, bias) = LayerNormalization(x + skip + bias).

    And SkipSimplifiedLayerNormalization = RMSNormalization(x + skip + bias); all graphs. A bias is
    added first, to what a MatMul gives where one does, so that it is that product's bias. The
    opset is raised to 17, or 23; a model that cannot be raised keeps its nodes, as do those whose
    mean or deviation is read.

    The two run faster than the one, from 16 rows on in 0.14 to 0.18 of its time, RMSNormalization
    in 0.5 to 0.6; for one row, in 0.3 to 0.6 and 0.9 to 1.2 (benchmarks/results/forms.md; the sum
    as onnxq.ort.add_norm writes it). The sum can run in integers, too.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Takes all of them apart."""
        modified = False
        for skip_type, norm in _NORMS.items():
            if not any(_is_apart(node, skip_type) for node in all_nodes(model)):
                continue
            if not raise_opset(model, norm.opset):
                continue
            names = FreeNames(model)
            for node in [n for n in all_nodes(model) if _is_apart(n, skip_type)]:
                _take_apart(node, norm, names)
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_apart(node: ir.Node, skip_type: str) -> bool:
    """Whether the node is of that type and can be two."""
    if (node.domain, node.op_type) != (_DOMAIN, skip_type):
        return False
    unread = (v for i, v in enumerate(node.outputs) if i not in (0, _SUM))
    return not any(map(is_read, unread))


def _take_apart(node: ir.Node, norm: _Norm, names: FreeNames) -> None:
    graph, stem = graph_of(node), str(node.name)
    y, a, b = node.outputs[0], input_at(node, 0), input_at(node, 1)

    def added(x: ir.Value, z: ir.Value, what: str) -> ir.Value:
        made = ir.node("Add", [x, z], name=names.node(f"{stem}_{what}"))
        (result,) = made.outputs
        result.name = names.value(f"{y.name}_{what}")
        result.type, result.shape = y.type, y.shape
        graph.insert_before(node, made)
        return result

    if has_input(node, norm.bias):
        if _is_product(b) and not _is_product(a):
            a, b = b, a
        a = added(a, input_at(node, norm.bias), "biased")
    total = added(a, b, "sum")
    parameters = [find_input(node, slot) for slot in norm.inputs]
    while parameters and parameters[-1] is None:
        parameters.pop()
    attributes = {"axis": -1, "epsilon": node.attributes.get_float("epsilon", _EPSILON)}
    made = ir.node(norm.op_type, [total, *parameters], attributes, name=stem)
    graph.insert_before(node, made)
    _give_way(y, made.outputs[0])
    if len(node.outputs) > _SUM:
        _give_way(node.outputs[_SUM], total)
    graph.remove(node, safe=True)


def _is_product(value: ir.Value) -> bool:
    """Whether a MatMul makes the value for this reader alone."""
    producer = value.producer()
    return producer is not None and producer.op_type == "MatMul" and len(value.uses()) == 1


def _give_way(old: ir.Value, new: ir.Value) -> None:
    """The new value takes over the readers, the type and, where it has one, the name of the old."""
    new.type, new.shape = old.type or new.type, old.shape or new.shape
    hand_on(old, new)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if old.name:
        new.name, old.name = old.name, None
