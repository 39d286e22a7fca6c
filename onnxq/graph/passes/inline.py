"""Calls of model-local functions are replaced by their bodies."""

import onnx_ir as ir
import onnx_ir.passes.common as common

from onnxq.errors import ModelError
from onnxq.graph.untrusted.check_model import refuse
from onnxq.graph.untrusted.order import check_depth
from onnxq.graph.untrusted.signatures import check_signatures


class InlineFunctions(ir.passes.InPlacePass):
    """f(x) := body of f at x, in all graphs; then no function is left."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        if not model.functions:
            return ir.passes.PassResult(model, modified=False)
        try:
            common.InlinePass()(model)
        except Exception as error:  # onnx_ir's pass has no error of its own
            raise ModelError(
                f"the model's functions cannot be inlined: {error}. Export the model without "
                "functions."
            ) from error
        model.functions.clear()
        for check in (check_depth, check_signatures):  # of which calls may make other ones
            refuse(check(model), "the model, its functions inlined")
        return ir.passes.PassResult(model, modified=True)
