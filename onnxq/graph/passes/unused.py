"""Nodes and initializers that nothing reads are removed, and initializers from the inputs."""

import onnx_ir as ir
import onnx_ir.passes.common as common

from onnxq.graph.edit import forget_unread


class RemoveUnused(ir.passes.InPlacePass):
    """Dead nodes and initializers of all graphs go; inputs and outputs of the model stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        modified = common.RemoveUnusedNodesPass()(model).modified
        for graph in model.graphs():
            before = len(graph.initializers)
            for value in tuple(graph.initializers.values()):
                forget_unread(value)
            modified |= len(graph.initializers) < before
        return ir.passes.PassResult(model, modified)


# --- Initializers that are listed as inputs become plain initializers


class RemoveInitializersFromInputs(ir.passes.InPlacePass):
    """inputs := inputs - initializers, in all graphs.

    Before IR version 4 every initializer had to be an input; later it means a default that a caller
    may override, which a quantized weight cannot be.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        return common.RemoveInitializersFromInputsPass()(model)
