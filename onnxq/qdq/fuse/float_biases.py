"""int32 biases of convolutions as floats, where ONNX Runtime makes the same integers of them.

    Conv(DQ x, DQ w, DQ(B_q, x_scale w_scale)) -> Q     becomes     Conv(DQ x, DQ w, B) -> Q
    B = B_q x_scale w_scale          where rint(B / (x_scale w_scale)) = B_q

The scales of the bias and its DequantizeLinear leave the file. A Gemm's bias stays: ONNX Runtime
does not round it where the result is float32.
"""

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import INT32
from onnxq.graph.edit import FreeNames, forget_unread, graph_of, new_constant
from onnxq.operator import Singles
from onnxq.operator.nodes import find_input, input_at
from onnxq.ort import facts
from onnxq.ort.version import OLDEST
from onnxq.qdq.fuse.float_weights import goes_to_quantize, is_per_output
from onnxq.qdq.read import BIAS, array_of, dequantizer, qparams_of
from onnxq.qparams import PerTensor, QParams, sum_scale

CONVOLUTION = "Conv"


def store_float_biases(model: ir.Model) -> None:
    """Gives convolutions between DQ and Q a float bias, in place."""
    names: FreeNames | None = None
    for node in model.graph.all_nodes():
        bias = _same_as_float(node)
        if bias is None:
            continue
        names = names or FreeNames(model)
        source = dequantizer(node.inputs[BIAS])
        assert source is not None, "it was read"
        stem = str(input_at(source, 0).name).removesuffix("_quantized")
        node.replace_input_with(BIAS, new_constant(node, names.value(stem), bias))
        _remove_unread(source)


def _same_as_float(node: ir.Node) -> Singles | None:
    """The numbers of an int32 bias, float32, where ONNX Runtime rounds them to its integers."""
    if node.op_type != CONVOLUTION or not facts.of(node, OLDEST).rounds_constants:
        return None
    source = dequantizer(find_input(node, BIAS))
    if source is None or not goes_to_quantize(node):
        return None
    read = [dequantizer(value) for value in node.inputs[: BIAS + 1]]
    x, w, b = (None if each is None else qparams_of(each) for each in read)
    if not (isinstance(x, QParams) and isinstance(w, QParams) and isinstance(b, QParams)):
        return None
    integers = array_of(source, 0)
    if integers is None or b.dtype != INT32 or integers.ndim != 1 or b.zero_point.any():
        return None
    scale = sum_scale(x, w)
    if x.granularity != PerTensor() or not np.array_equal(scale, b.scale):
        return None
    bias = (integers * scale.astype(np.float64)).astype(np.float32)
    if not is_per_output(w, bias, node) or (np.asarray(scale) == 0).any():
        return None
    again = np.rint(np.asarray(bias / scale, np.float32))
    return bias if np.array_equal(again, integers) else None


def _remove_unread(source: ir.Node) -> None:
    """Takes a DequantizeLinear that nobody reads, and its constants, out of the graph."""
    if source.outputs[0].uses() or source.outputs[0].is_graph_output():
        return
    constants = [value for value in source.inputs if value is not None]
    graph_of(source).remove(source, safe=True)
    for value in constants:
        forget_unread(value)
