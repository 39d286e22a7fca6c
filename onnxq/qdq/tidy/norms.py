"""BatchNormalization behind a weight in integers disappears into the scales and the bias.

    f (sum_i s q_i x_i + b - mean) + beta  =  sum_i (s |f|) (sign(f) q_i) x_i + f (b - mean) + beta

with f = gamma / sqrt(var + eps), per output channel: the integers stay what was trained, but for
their sign. (Folded into the real weight and quantized again, they would be others.)
"""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.core.arrays import Reals
from onnxq.core.batch_norm import folded_bias
from onnxq.dtypes import INT8
from onnxq.graph.affine import affine_of
from onnxq.graph.edit import FreeNames, bypass, graph_of, new_constant, sole_reader
from onnxq.qdq.read import BIAS, array_of
from onnxq.qdq.tidy.stored_constants import DEAD
from onnxq.qdq.tidy.stored_weights import Int8Weight, weight_of

GAMMA, MEAN = 1, 3  # slots


def take_divisor(norm: ir.Node, names: FreeNames) -> None:
    """BN(x / d) = BN'(x), with gamma / d and mean * d: PyTorch scaled the weights by d."""
    x = norm.inputs[0] if norm.op_type == "BatchNormalization" and not norm.domain else None
    divide = None if x is None else x.producer()
    if x is None or divide is None or divide.op_type != "Div" or divide.domain:
        return
    divisor, gamma, mean = array_of(divide, 1), array_of(norm, GAMMA), array_of(norm, MEAN)
    if divisor is None or gamma is None or mean is None or len(x.uses()) > 1 or x.is_graph_output():
        return
    along = divisor.ndim > 1 and divisor.shape[1] == divisor.size == gamma.size
    if not (along or divisor.size == 1) or not divisor.all():
        return
    numbers = divisor.reshape(-1).astype(np.float64)
    for slot, array in ((GAMMA, gamma / numbers), (MEAN, mean * numbers)):
        name = names.value(f"{norm.name}_undivided")
        norm.replace_input_with(slot, new_constant(norm, name, array.astype(np.float32)))
    norm.replace_input_with(0, divide.inputs[0])
    graph_of(divide).remove(divide, safe=True)


def fold_norm(norm: ir.Node, names: FreeNames) -> None:
    """Folds the node in place, if it is such a BatchNormalization.

    It stays where the layer is read by others too, where an output channel has no scale of its
    own (grouped ConvTranspose), and where an integer of -128 would have to change its sign.
    """
    affine = affine_of(norm, array_of)
    if affine is None:
        return
    x = norm.inputs[0]
    producer = None if x is None else x.producer()
    if x is None or producer is None or sole_reader(x) is None:
        return
    weight = weight_of(producer)
    bias = _real_bias(producer, affine.factor.size)
    if weight is None or bias is None or weight.channels != affine.factor.size:
        return
    integers, scale = _scaled(weight, affine.factor)
    if integers is None:
        return
    weight.store(integers, scale, producer, names)
    real = folded_bias(bias, affine.factor, affine.mean, affine.beta).astype(np.float32)
    constant = new_constant(producer, names.value(f"{weight.stem}_bias"), real)
    producer.resize_inputs(BIAS + 1)
    producer.replace_input_with(BIAS, constant)
    name = norm.outputs[0].name
    bypass(norm)
    producer.outputs[0].name = name


def _real_bias(node: ir.Node, channels: int) -> Reals | None:
    """The bias in float; zeros without one; None if it is no constant vector."""
    if len(node.inputs) <= BIAS or node.inputs[BIAS] is None:
        return np.zeros(channels)
    array = array_of(node, BIAS)
    return array.astype(np.float64) if array is not None and array.shape == (channels,) else None


def _scaled(
    weight: Int8Weight, factor: Reals
) -> tuple[npt.NDArray[np.int8] | None, npt.NDArray[np.float32]]:
    """Integers and scales with the factor in them; no integers where one has no negative."""
    shape = [1] * weight.integers.ndim
    shape[weight.axis] = -1
    integers = weight.integers.astype(np.int16) * np.where(factor < 0, -1, 1).reshape(shape)
    scale = weight.scale.astype(np.float64) * np.abs(factor)  # () or (channels,) -> (channels,)
    integers = integers * (factor != 0).reshape(shape)
    others = tuple(i for i in range(integers.ndim) if i != weight.axis)
    live = integers.any(axis=others)
    top = scale[live].max() if live.any() else 1.0
    narrow = np.where(live, scale, top * DEAD).astype(np.float32)
    if integers.max(initial=0) > INT8.qmax or not ((narrow > 0) & np.isfinite(narrow)).all():
        return None, narrow
    return integers.astype(np.int8), narrow
