"""Gemm's factors disappear into its constants; its bias gets one number per column."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import all_nodes
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import find_input, has_input, input_at, tensor_of

_A, _B, _C = 0, 1, 2  # slots
_ONE_NUMBER = ((), (1,), (1, 1))  # shapes of C


class FoldGemmFactors(ir.passes.InPlacePass):
    """alpha A' B' + beta C = A' (alpha B)' + (beta C), and a C of one element becomes (N,).

    All graphs. alpha goes into B, or into A where only that is constant; beta into a constant C;
    where beta is 0, C goes. Only float32 constants; one that others read too is left to them, and
    the folded one is a copy, one for all that fold the same. transA and transB stay.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Folds what can be folded."""
        gemms = [n for n in all_nodes(model) if n.op_type == "Gemm" and not n.domain]
        exchange = ConstantExchange(model)
        modified = False
        for node in gemms:
            for step in (_fold_alpha, _fold_beta, _one_number_per_column):
                modified = step(node, exchange) or modified
        exchange.share()
        return ir.passes.PassResult(model, modified)


def _fold_alpha(node: ir.Node, exchange: ConstantExchange) -> bool:
    alpha = node.attributes.get_float("alpha", 1.0)
    slot = next((slot for slot in (_B, _A) if _float_constant(node, slot) is not None), None)
    if alpha == 1.0 or slot is None:
        return False
    _scale(node, slot, alpha, exchange)
    del node.attributes["alpha"]
    return True


def _fold_beta(node: ir.Node, exchange: ConstantExchange) -> bool:
    beta = node.attributes.get_float("beta", 1.0)
    has_bias = has_input(node, _C)
    if beta == 1.0 or (has_bias and beta != 0.0 and _float_constant(node, _C) is None):
        return False
    if has_bias and beta != 0.0:
        _scale(node, _C, beta, exchange)
    else:
        node.resize_inputs(_C)  # ONNX Runtime does not read C either where beta is 0
    del node.attributes["beta"]
    return True


def _one_number_per_column(node: ir.Node, exchange: ConstantExchange) -> bool:
    weight, bias = _float_constant(node, _B), _float_constant(node, _C)
    if weight is None or bias is None or bias.shape.numpy() not in _ONE_NUMBER:
        return False
    columns = weight.shape.numpy()[0 if node.attributes.get_int("transB", 0) else 1]
    if bias.shape.numpy() == (columns,):
        return False
    row = derived(lambda: np.full(columns, bias.numpy()), ir.DataType.FLOAT, (columns,))
    exchange.put(node, _C, row, f"{input_at(node, _C).name}_row", ("row", columns))
    return True


def _float_constant(node: ir.Node, slot: int) -> ir.TensorProtocol | None:
    tensor = constant(find_input(node, slot))
    return tensor if tensor is not None and tensor.dtype == ir.DataType.FLOAT else None


def _scale(node: ir.Node, slot: int, factor: float, exchange: ConstantExchange) -> None:
    """Puts factor * constant into the constant's slot."""
    value = input_at(node, slot)
    tensor = tensor_of(value)
    scaled = derived(
        lambda: tensor.numpy() * np.float32(factor), ir.DataType.FLOAT, tensor.shape.numpy()
    )
    exchange.put(node, slot, scaled, f"{value.name}_scaled", ("times", factor))
