"""Constant nodes become initializers of their graph."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from onnxq.errors import ModelError
from onnxq.graph.edit import all_nodes


class LiftConstants(ir.passes.InPlacePass):
    """c = Constant(value) becomes initializer c of the graph that holds the node, bodies included.

    A Constant that is itself a graph output stays: an output must be produced by a node.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lifts all constants, of any size; tensors are shared.

        Raises:
            ModelError: a constant is sparse.
        """
        for node in all_nodes(model):
            if node.op_type == "Constant" and not node.domain and "sparse_value" in node.attributes:
                raise ModelError(
                    f"Constant '{node.outputs[0].name}' is sparse; only dense weights are supported. "
                    "Make it dense before you export the model."
                )
        return common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
