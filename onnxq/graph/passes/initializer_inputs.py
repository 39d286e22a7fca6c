"""Initializers that are listed as inputs become plain initializers."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common


class RemoveInitializersFromInputs(ir.passes.InPlacePass):
    """inputs := inputs - initializers, in all graphs.

    Before IR version 4 every initializer had to be an input; later it means a default that a caller
    may override, which a quantized weight cannot be.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Removes them; modified says whether there were any."""
        return common.RemoveInitializersFromInputsPass()(model)
