"""A factor and a summand ahead of nodes with weights disappear into their weights and biases."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnxq.graph.affine import Affine
from onnxq.graph.edit import all_nodes, bypass
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.origins import set_origins
from onnxq.graph.passes.fold_batch_norm import channels_of, fold_into, has_room
from onnxq.graph.passes.fold_factors import LARGEST, SMALLEST, multiply
from onnxq.graph.passes.formulas import Line, line_of, only_reader
from onnxq.graph.passes.windows import is_padded
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import find_input, has_input, input_at, tensor_of

_WEIGHT = 1  # slot
_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


class FoldFactorsAhead(ir.passes.InPlacePass):
    """W (f x) + b = (f W) x + b for a number f, and W (x + g) + b = W x + (g W 1 + b) for one g.

    W stands for Conv, ConvTranspose, Gemm or MatMul with constant weights; a summand goes into a
    Conv that pads nothing, for the padding is 0 and not g. Where f x + g is read, first

        f x + g = f (x + g / f).

    All graphs, float32 only, and only where all who read the product are such nodes. A weight that
    others read too is left to them. Products and sums are rounded once less than before.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        exchange = ConstantExchange(model)
        modified = False
        for node in all_nodes(model):
            line = line_of(node)
            if line is None or line.x.dtype != ir.DataType.FLOAT:
                continue
            fold = _fold_factor if node.op_type in ("Mul", "Div") else _fold_summand
            modified |= fold(node, line, exchange)
        exchange.share()
        return ir.passes.PassResult(model, modified)


def _fold_factor(node: ir.Node, line: Line, exchange: ConstantExchange) -> bool:
    """Multiplies the weights of all who read f x, or f x + g."""
    if not SMALLEST <= abs(line.factor) <= LARGEST:
        return False
    y = node.outputs[0]
    adder = only_reader(y)
    slot = None if adder is None or adder.op_type != "Add" else _constant_slot(adder)
    readers = _readers(y if adder is None or slot is None else adder.outputs[0])
    if readers is None:
        return False
    factor = np.array(line.factor, np.float32)
    if adder is not None and slot is not None:
        multiply(adder, slot, np.asarray(1 / factor), exchange)
    for reader in readers:
        multiply(reader, _WEIGHT, factor, exchange)
    return _without(node, line.x)


def _fold_summand(node: ir.Node, line: Line, exchange: ConstantExchange) -> bool:
    """Adds g times the sum of each channel's weights to the biases of all who read x + g."""
    readers = _readers(node.outputs[0])
    if readers is None or line.factor != 1.0 or not np.isfinite(line.offset):
        return False
    if any(r.op_type != "Conv" or is_padded(r) or not has_room(r) for r in readers):
        return False
    for reader in readers:
        weight = tensor_of(input_at(reader, _WEIGHT)).numpy().astype(np.float64)
        summand = line.offset * weight.reshape(channels_of(reader), -1).sum(1)
        affine = Affine(np.ones_like(summand), np.zeros_like(summand), summand)
        fold_into(reader, affine, exchange)
    return _without(node, line.x)


def _without(node: ir.Node, x: ir.Value) -> bool:
    """Takes the node out; who read its result reads x, which is another tensor."""
    set_origins(node.outputs[0], ())
    return bypass(node, 0 if node.inputs[0] is x else 1)


def _readers(value: ir.Value) -> Sequence[ir.Node] | None:
    """Who reads the value, each a node whose constant weight it is multiplied by; else None."""
    uses = value.uses()
    if value.is_graph_output() or not uses:
        return None
    for use in uses:
        weight = constant(use.node.inputs[_WEIGHT]) if use.node.op_type in _LINEAR else None
        if use.node.domain or use.idx != 0 or weight is None:
            return None
        if weight.dtype != ir.DataType.FLOAT or use.node.graph is not value.graph:
            return None
    return [use.node for use in uses]


def _constant_slot(node: ir.Node) -> int | None:
    """The slot of an operand that is a float32 constant."""
    for slot in (0, 1):
        tensor = constant(node.inputs[slot])
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT:
            return slot
    return None


# --- Gemm's factors disappear into its constants; its bias gets one number per column


_A, _B, _C = 0, 1, 2  # slots
_ONE_NUMBER = ((), (1,), (1, 1))  # shapes of C


class FoldGemmFactors(ir.passes.InPlacePass):
    """alpha A' B' + beta C = A' (alpha B)' + (beta C), and a C of one element becomes (N,).

    All graphs. alpha goes into B, or into A where only that is constant; beta into a constant C;
    where beta is 0, C goes. Only float32 constants; one that others read too is left to them, and
    the folded one is a copy, one for all that fold the same. transA and transB stay.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
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
    multiply(node, slot, np.array(alpha, np.float32), exchange)
    del node.attributes["alpha"]
    return True


def _fold_beta(node: ir.Node, exchange: ConstantExchange) -> bool:
    beta = node.attributes.get_float("beta", 1.0)
    has_bias = has_input(node, _C)
    if beta == 1.0 or (has_bias and beta != 0.0 and _float_constant(node, _C) is None):
        return False
    if has_bias and beta != 0.0:
        multiply(node, _C, np.array(beta, np.float32), exchange)
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
