"""Constant nodes become initializers of their graph."""

import onnx_ir as ir
import onnx_ir.passes.common as common


class LiftConstants(ir.passes.InPlacePass):
    """c = Constant(value) becomes initializer c of the graph that holds the node, bodies included.

    A Constant that is itself a graph output stays: an output must be produced by a node.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lifts all constants, of any size; tensors are shared (`load` refuses sparse ones)."""
        return common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
