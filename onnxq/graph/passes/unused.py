"""Nodes and initializers that nothing reads are removed."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common


class RemoveUnused(ir.passes.InPlacePass):
    """Dead nodes and initializers of all graphs go; inputs and outputs of the model stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Removes them; a weight goes with its last reader."""
        modified = common.RemoveUnusedNodesPass()(model).modified
        for graph in model.graphs():
            dead = [
                name
                for name, v in graph.initializers.items()
                if not (v.uses() or v.is_graph_output() or v.is_graph_input())
            ]
            for name in dead:
                del graph.initializers[name]
            modified |= bool(dead)
        return ir.passes.PassResult(model, modified)
