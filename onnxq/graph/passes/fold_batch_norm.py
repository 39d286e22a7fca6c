"""BatchNormalization behind Conv, ConvTranspose or Gemm disappears into weight and bias."""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.core.arrays import Singles
from onnxq.core.batch_norm import folded_bias
from onnxq.graph.affine import Affine, affine_of
from onnxq.graph.edit import all_nodes, bypass, sole_reader
from onnxq.graph.exchange import ConstantExchange
from onnxq.graph.folded import note_factor
from onnxq.graph.origins import move
from onnxq.graph.weights import constant, derived
from onnxq.operator.nodes import find_input, input_at, tensor_of

_WEIGHT, _BIAS = 1, 2  # slots of Conv, ConvTranspose and Gemm
_WEIGHT_RANK = 2  # at least
_PRODUCERS = ("Conv", "ConvTranspose", "Gemm")


class FoldBatchNorm(ir.passes.InPlacePass):
    """BN(w x + b) = (f w) x + f (b - mean) + beta, f = gamma / sqrt(var + eps), per channel.

    All graphs. Only at inference, only float32 constants, only where nothing else reads the
    producer's output. A weight or bias that others read too is left to them, and the folded one is
    a copy, one for all that fold the same (a module called twice). The output keeps the name of the
    BatchNormalization's.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        exchange = ConstantExchange(model)
        for node in all_nodes(model):
            affine = affine_of(node, _constant_in)
            if affine is None:
                continue
            producer = foldable_producer(node, node.inputs[0])
            if producer is None or channels_of(producer) != len(affine.factor):
                continue
            fold_into(producer, affine, exchange)
            _take_over(node, producer)
        exchange.share()
        return ir.passes.PassResult(model, exchange.modified)


def _constant_in(node: ir.Node, slot: int) -> Singles | None:
    tensor = constant(find_input(node, slot))
    return None if tensor is None else tensor.numpy()


def foldable_producer(reader: ir.Node, x: ir.Value | None) -> ir.Node | None:
    """The Conv, ConvTranspose or Gemm whose weight and bias can take what the reader does to x."""
    node = x.producer() if x is not None else None
    if x is None or node is None or node.op_type not in _PRODUCERS or node.domain:
        return None
    if sole_reader(x) is None or node.graph is not reader.graph:
        return None
    return node if has_room(node) else None


def has_room(node: ir.Node) -> bool:
    """Whether weight and bias of a Conv, ConvTranspose or Gemm are constants to be changed."""
    weight = constant(node.inputs[_WEIGHT])
    if weight is None or weight.dtype != ir.DataType.FLOAT:
        return False
    if len(weight.shape) < _WEIGHT_RANK:
        return False  # ONNX Runtime is to say so
    return _bias_folds(node, channels_of(node))


def channels_of(node: ir.Node) -> int:
    """Output channels of a Conv, ConvTranspose or Gemm with a constant weight."""
    shape = tensor_of(input_at(node, _WEIGHT)).shape.numpy()
    if node.op_type == "Conv":
        return shape[0]
    if node.op_type == "ConvTranspose":
        return shape[1] * node.attributes.get_int("group", 1)
    return shape[0] if node.attributes.get_int("transB", 0) else shape[1]


def _bias_folds(node: ir.Node, channels: int) -> bool:
    value = find_input(node, _BIAS)
    if value is None:
        return True
    tensor = constant(value)  # Gemm's C may also be a whole matrix
    allowed = ((), (1,), (1, 1), (channels,), (1, channels), (channels, 1) if channels == 1 else ())
    return tensor is not None and tensor.shape.numpy() in allowed


def fold_into(node: ir.Node, affine: Affine, exchange: ConstantExchange) -> None:
    """Folds the function of each channel into the node's weight and bias."""
    weight = input_at(node, _WEIGHT)
    stored = tensor_of(weight)
    bias, factor = _scaled_bias(node, affine), _factor(node, stored, affine)
    shape = stored.shape.numpy()
    tensor = derived(lambda: stored.numpy() * factor, ir.DataType.FLOAT, shape)
    tensor = note_factor(stored, factor, tensor)
    # a bias that was not there is made of the weight's batch norm, and of nothing else's
    bias_made_by = (exchange.origin(weight), bias.tobytes())
    channels_at = [node.attributes.get_int(*each) for each in (("group", 1), ("transB", 0))]
    weight_made_by = (node.op_type, *channels_at, affine.factor.tobytes())
    exchange.put(node, _WEIGHT, tensor, f"{weight.name}_folded", weight_made_by)
    exchange.put(node, _BIAS, ir.tensor(bias), f"{weight.name}_bias", bias_made_by)
    if "beta" in node.attributes:
        node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)


def _scaled_bias(node: ir.Node, affine: Affine) -> npt.NDArray[np.float32]:
    tensor = constant(find_input(node, _BIAS))
    bias = np.zeros(1) if tensor is None else tensor.numpy().astype(np.float64).reshape(-1)
    if node.op_type == "Gemm":
        bias = bias * node.attributes.get_float("beta", 1.0)
    folded = folded_bias(bias, affine.factor, affine.mean, affine.beta)
    return folded.astype(np.float32)


def _factor(node: ir.Node, tensor: ir.TensorProtocol, affine: Affine) -> Singles:
    """The factor of the weight, along its output channels."""
    shape = tensor.shape.numpy()
    factor = affine.factor.astype(np.float32)
    if node.op_type == "ConvTranspose":  # (in, out / group, ...): group g owns a block of both
        group = node.attributes.get_int("group", 1)
        per_row = np.repeat(factor.reshape(group, -1), shape[0] // group, axis=0)
        factor = per_row.reshape(shape[0], shape[1], *[1] * (len(shape) - 2))
    elif node.op_type == "Conv" or node.attributes.get_int("transB", 0) == 1:
        factor = factor.reshape(-1, *[1] * (len(shape) - 1))
    return factor


def _take_over(norm: ir.Node, producer: ir.Node) -> None:
    name = norm.outputs[0].name
    move(norm.outputs[0], producer.outputs[0])
    bypass(norm)
    producer.outputs[0].name = name
