"""Float biases of products of integers become int32 at x_scale * w_scale, as integers add them.

ONNX Runtime rounds such a bias to int32 by itself, but only with all its optimizations: stored as
integers, the model computes the same at every level.
"""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.affine import quantize
from onnxq.dtypes import INT32
from onnxq.graph.edit import FreeNames, sole_reader
from onnxq.operator.nodes import find_input, input_at
from onnxq.qdq.read import BIAS, Unread, array_of, dequantizer, is_quantize, one_scale, qparams_of
from onnxq.qdq.tidy.stored_constants import DEAD
from onnxq.qdq.tidy.stored_weights import Int8Weight, weight_of
from onnxq.qdq.write import constants_of, feed, new_integers
from onnxq.qparams import PerChannel, PerTensor, QParams, product_scale, scale_for_int32_bias

FEW_BITS = 64  # products with such integers add up exactly on every CPU
_INTEGER = ("Conv", "Gemm", "ConvTranspose")


def store_bias(node: ir.Node, names: FreeNames) -> None:
    """Gives a Conv or Gemm of integers, whose result becomes integers, an int32 bias in place.

    Where the bias leaves int32, its channel's weights are rounded to a coarser scale.
    """
    if node.op_type not in _INTEGER or len(node.inputs) <= BIAS:
        return
    if node.op_type != "Gemm" and not is_quantize(sole_reader(node.outputs[0])):
        return  # QGemm gives float32, too
    weight, source = weight_of(node), dequantizer(node.inputs[0])
    bias = array_of(node, BIAS)
    x = one_scale(source)
    if weight is None or bias is None or x is None:
        return
    if bias.dtype != np.float32 or bias.shape != (weight.channels,):
        return
    if any(node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return  # the bias is not added as it is
    if not np.isfinite(bias).all():
        return  # as the module has it
    weight = _with_room(_with_fine_scales(weight, node, names), bias, x.scale, node, names)
    scale = product_scale(x.scale, weight.scale)
    granularity = PerChannel(0) if scale.ndim else PerTensor()
    qparams = QParams(scale, np.zeros(scale.shape, np.int32), INT32, granularity)
    stem = str(input_at(node, BIAS).name)
    integers, graph_qparams = new_integers(
        constants_of(node, names), stem, quantize(bias, qparams), qparams
    )
    name = names.node(f"{stem}_dequantize")
    feed(node, BIAS, graph_qparams.dequantize(integers, name, names.value(f"{stem}_dequantized")))


def real_bias(node: ir.Node) -> npt.NDArray[np.float32] | None:
    """The numbers of a constant bias, float or integers; None: it has none, or is computed."""
    source = dequantizer(find_input(node, BIAS))
    if source is None:
        return array_of(node, BIAS)
    integers, qparams = array_of(source, 0), qparams_of(source)
    if integers is None or isinstance(qparams, Unread):
        return None
    # in float64, rounded once: int32 integers may be beyond float32's whole numbers
    centred = integers.astype(np.float64) - qparams.zero_point
    return (centred * qparams.scale.astype(np.float64)).astype(np.float32)


def _with_fine_scales(weight: Int8Weight, node: ir.Node, names: FreeNames) -> Int8Weight:
    """The same real weight with integers 2^k as large, up to FEW_BITS: the bias gets a finer scale.

    Integers of 4 bits have steps 16 times those of 8 bits, and a bias rounded to them is off by up
    to half an output's step.
    """
    largest = int(np.abs(weight.integers.astype(np.int16)).max(initial=0))
    factor = 1
    while 0 < 2 * factor * largest <= FEW_BITS:
        factor *= 2
    scale = weight.scale / np.float32(factor)
    if factor == 1 or (scale < np.finfo(np.float32).tiny).any():
        return weight
    return weight.store((weight.integers * np.int8(factor)).astype(np.int8), scale, node, names)


def _with_room(
    weight: Int8Weight,
    bias: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    x_scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]],
    node: ir.Node,
    names: FreeNames,
) -> Int8Weight:
    """The weight with scales at which the bias fits int32."""
    others = tuple(i for i in range(weight.integers.ndim) if i != weight.axis)
    live = weight.integers.any(axis=others)
    held = weight.scale
    if held.ndim and not live.all():  # integers of 0 say the same at any scale
        top = held[live].max() if live.any() else np.float32(1)
        held = np.where(live, held, np.float32(top * DEAD)).astype(np.float32)
    scale = scale_for_int32_bias(held, bias, x_scale)
    if np.array_equal(scale, weight.scale):
        return weight
    shape = [1] * weight.integers.ndim
    if scale.ndim:
        shape[weight.axis] = -1
    shrunk = weight.integers * (weight.scale.astype(np.float64) / scale).reshape(shape)
    limited = np.where(weight.integers == 0, 0, np.rint(shrunk)).astype(np.int8)
    return weight.store(limited, scale, node, names)
