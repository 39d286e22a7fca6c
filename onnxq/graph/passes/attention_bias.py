"""com.microsoft Attention gets the bias that its schema calls optional and its kernels do not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxq.graph.edit import all_nodes
from onnxq.graph.exchange import ConstantExchange
from onnxq.operator.nodes import find_input, has_input, input_at

_WEIGHT, _BIAS = 1, 2  # slots
_MATRIX = 2


class GiveAttentionBias(ir.passes.InPlacePass):
    """X W = X W + 0, where there is no bias and the columns of W are known; all graphs.

    ONNX Runtime 1.31 reads the absent bias and ends the process.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Writes zeros where a bias is missing."""
        bare = [node for node in all_nodes(model) if _is_bare(node)]
        exchange = ConstantExchange(model)
        for node in bare:
            weight = input_at(node, _WEIGHT)
            assert weight.shape is not None
            columns = weight.shape[1]
            assert isinstance(columns, int)
            zeros = np.zeros(columns, np.float32)
            exchange.put(node, _BIAS, ir.tensor(zeros), f"{weight.name}_no_bias", ("zeros", weight))
        exchange.share()
        return ir.passes.PassResult(model, bool(bare))


def _is_bare(node: ir.Node) -> bool:
    if (node.domain, node.op_type) != ("com.microsoft", "Attention"):
        return False
    if has_input(node, _BIAS):
        return False
    weight = find_input(node, _WEIGHT)
    if weight is None or weight.shape is None or len(weight.shape) != _MATRIX:
        return False
    return isinstance(weight.shape[1], int)
