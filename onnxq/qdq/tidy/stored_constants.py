"""QuantizeLinear of a constant: its integers are stored, as int8 where they lie around 128.

w -> Q -> [Clip ->] DQ           becomes     w_quantized -> DQ
w_integers -> Cast to 4 bits        becomes     w_integers_stored
"""

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnxq.affine import quantize
from onnxq.dtypes import INT8, UINT8
from onnxq.errors import UnsupportedError
from onnxq.graph.edit import FreeNames, graph_of, new_constant
from onnxq.graph.weights import constant
from onnxq.qdq.read import Unread, array_of, is_dequantize, is_quantize, qparams_of
from onnxq.qparams import SHIFT, QParams

EVERYTHING = 2.0**126
"""Scale from which on every integer is 0: onnxq.pytorch.tensor_quant.functions."""
DEAD = 2.0**-23
"""Scale of a channel whose integers are all 0, as a share of the largest: any scale is right."""


_NARROW = (ir.DataType.INT4, ir.DataType.UINT4)


def store_narrow(node: ir.Node, names: FreeNames) -> None:
    """Stores constant integers that are cast to 4 bits as such, in place."""
    if node.op_type != "Cast" or node.domain or node.outputs[0].dtype not in _NARROW:
        return
    integers = constant(node.inputs[0])
    if integers is None:
        return
    name = names.value(f"{integers.name}_stored")
    narrow = integers.numpy().astype(ir.DataType(node.outputs[0].dtype).numpy())
    node.outputs[0].replace_all_uses_with(new_constant(node, name, narrow))
    graph_of(node).remove(node, safe=True)


def store_integers(node: ir.Node, names: FreeNames) -> None:
    """Computes a QuantizeLinear of a constant, and the Clip on its integers, in place."""
    if not is_quantize(node):
        return
    real, qparams = array_of(node, 0), qparams_of(node)
    if isinstance(qparams, Unread):
        return
    if real is None:
        _check_live(node, qparams)
    if real is None or real.dtype != np.float32:
        return
    integers: npt.NDArray[np.generic] = quantize(real, qparams)
    last = node.outputs[0]
    if last.is_graph_output():
        return
    bounds = _clip_behind(last)
    if bounds is not None:
        last = bounds[0]
        integers = np.clip(integers, *bounds[1:])
    integers = _around_zero(last, integers, qparams, node, names)
    _scale_dead_channels(last, qparams, node, names)
    source = node.inputs[0]
    assert source is not None
    stored = new_constant(node, names.value(f"{source.name}_quantized"), integers)
    last.replace_all_uses_with(stored)
    dead = [node] if bounds is None else [*node.outputs[0].consumers(), node]
    graph_of(node).remove(dead, safe=True)


def _check_live(node: ir.Node, qparams: QParams) -> None:
    if (qparams.scale >= EVERYTHING).any():
        x = node.inputs[0]
        raise UnsupportedError(
            f"tensor '{x.name if x is not None else node.name}' is quantized with amax <= 2^-24: "
            "it was 0 in every sample. Calibrate on data in which it lives, or disable its "
            "quantizer."
        )


def _scale_dead_channels(
    value: ir.Value, qparams: QParams, node: ir.Node, names: FreeNames
) -> None:
    """Channels of amax 0 get a small scale: products with that of x stay finite, biases fine."""
    dead = qparams.scale >= EVERYTHING
    readers = list(value.consumers())
    if not dead.any() or not all(map(is_dequantize, readers)):
        return
    top = qparams.scale[~dead].max() if not dead.all() else np.float32(1)
    scale = np.where(dead, np.float32(top * DEAD), qparams.scale).astype(np.float32)
    stored = new_constant(node, names.value(f"{value.name}_scale"), scale)
    for reader in readers:
        reader.replace_input_with(1, stored)


def _clip_behind(integers: ir.Value) -> tuple[ir.Value, int, int] | None:
    """(result, lowest, largest) of the only reader, if it is a Clip by constants."""
    readers = list(integers.consumers())
    if len(readers) != 1 or readers[0].op_type != "Clip" or readers[0].outputs[0].is_graph_output():
        return None
    low, high = array_of(readers[0], 1), array_of(readers[0], 2)
    return None if low is None or high is None else (readers[0].outputs[0], int(low), int(high))


def _around_zero(
    value: ir.Value,
    integers: npt.NDArray[np.generic],
    qparams: QParams,
    node: ir.Node,
    names: FreeNames,
) -> npt.NDArray[np.generic]:
    """uint8 integers around 128 as int8 around 0, which integer kernels want of weights."""
    readers = list(value.consumers())
    if qparams.dtype != UINT8 or not (qparams.zero_point == SHIFT).all():
        return integers
    if not readers or not all(map(is_dequantize, readers)):
        return integers
    zero = np.zeros(qparams.zero_point.shape, INT8.storage)
    middle = new_constant(node, names.value(f"{value.name}_zero_point"), zero)
    for reader in readers:
        reader.replace_input_with(2, middle)
    return (integers.astype(np.int16) - SHIFT).astype(INT8.storage)
