"""Calls of model-local functions are replaced by their bodies."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as common

from onnxq.errors import ModelError


class InlineFunctions(ir.passes.InPlacePass):
    """f(x) := body of f at x, in all graphs; then no function is left."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Inlines all calls.

        Raises:
            ModelError: functions call each other in a circle, or were written for another opset.
        """
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        try:
            common.InlinePass()(model)
        except (ValueError, ir.passes.PreconditionError) as error:
            raise ModelError(
                f"the model's functions cannot be inlined: {error}. Export the model without "
                "functions."
            ) from error
        model.functions.clear()
        return ir.passes.PassResult(model, modified=True)
