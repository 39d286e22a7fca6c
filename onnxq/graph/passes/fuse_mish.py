"""Mish that an exporter wrote out becomes the operator."""

from __future__ import annotations

import onnx_ir as ir

from onnxq.graph.passes.formulas import only_reader, producer_of
from onnxq.graph.passes.fused_node import FusedNode, fuse_all, inner_nodes

OPSET = 18  # Mish's first


class FuseMish(ir.passes.InPlacePass):
    """x tanh(softplus(x)) = Mish(x).

    All graphs, float32 only, and only where nothing else reads a value in between. The opset is
    raised to 18 where it is lower. ONNX Runtime runs the operator as these three nodes; on integers
    it is one table in place of three.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fuses all that match."""
        return ir.passes.PassResult(model, fuse_all(model, _match, OPSET))


def _match(node: ir.Node) -> FusedNode | None:
    if node.domain or node.op_type != "Tanh":
        return None
    softplus = producer_of(node.inputs[0])
    if softplus is None or softplus.op_type != "Softplus" or softplus.domain:
        return None
    x, product = softplus.inputs[0], only_reader(node.outputs[0])
    if x is None or x.dtype != ir.DataType.FLOAT or product is None or product.op_type != "Mul":
        return None
    if {*product.inputs} != {x, node.outputs[0]}:
        return None
    nodes = inner_nodes(product, {x})
    return None if nodes is None else FusedNode(nodes, "Mish", [x], {})
