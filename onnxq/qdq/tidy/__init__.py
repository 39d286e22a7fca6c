"""Brings an exported quantized module to the form that ONNX Runtime runs in integers.

    x_dequantized -> MaxPool -> ...          becomes   x_dequantized -> MaxPool -> Q -> DQ -> ...
    Conv -> Relu, Clip -> Q                  becomes   Conv -> Q [-> Clip on integers]
    w -> Q -> DQ                             becomes   w_quantized -> DQ
    integers -> Cast to 4 bits                  becomes   integers of 4 bits
    integers of a weight [-> DQ] -> Transpose   become    transposed integers [-> DQ]
    Conv of integers -> BatchNormalization      becomes   Conv of integers, with its scales
    Conv of integers, float bias                becomes   Conv of integers, int32 bias
    integers of activations in int8             become    uint8, of the same numbers
    ConvTranspose between DQ and Q           becomes   QLinearConv, its results interleaved
    x -> Q, x -> Q                           becomes   x -> Q
    DQ -> Q of equal qparams                 goes
    GlobalAveragePool -> Flatten -> Q        becomes   GlobalAveragePool -> Q -> DQ -> Flatten -> Q
    ReduceMean over space                    becomes   GlobalAveragePool
    the mark where a region ends             goes      where nothing behind it is quantized again

Every step keeps the numbers, but for biases, which are rounded as integers add them: data movement
and rounding can be exchanged, and so can rounding and clipping. Only the main graph is
looked at: torch.export leaves bodies to torch.cond.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.affine import integer_bounds
from onnxq.dtypes import QDType
from onnxq.errors import ModelError
from onnxq.graph import edit
from onnxq.graph.checks import FORMAT_KEY
from onnxq.graph.passes.global_pool import MeanToGlobalPool
from onnxq.graph.passes.unused import RemoveUnused
from onnxq.graph.types import infer_types
from onnxq.operator import Array, OpCategory
from onnxq.ort.node_kinds import MATMUL_NBITS
from onnxq.qdq import read
from onnxq.qdq.float_matmul import keep_float_matmul
from onnxq.qdq.fuse import Int8Activations
from onnxq.qdq.qoperator import FORMATS
from onnxq.qdq.signed_integers import keep_loadable
from onnxq.qdq.tidy.biases import store_bias
from onnxq.qdq.tidy.lowered import lower_layer
from onnxq.qdq.tidy.movement import MARK, drop_round_trip, onto_qparams, quantize_before
from onnxq.qdq.tidy.norms import fold_norm, take_divisor
from onnxq.qdq.tidy.stored_constants import store_integers, store_narrow
from onnxq.qdq.tidy.unsigned import store_unsigned
from onnxq.qdq.write import GraphQParams, clip_integers, constants_of, graph_qparams_of
from onnxq.qparams import PerBlock, QParams, sum_scale

# Tensors that an operator rounds. An LSTM rounds its input and h at every step; what is off by a
# step in h fades within a few steps.
_ROUNDED = {read.QUANTIZE: 1, "DynamicQuantizeLinear": 1, "DynamicQuantizeLSTM": 4}
_DEFAULTS = {"block_size": 0, "output_dtype": 0, "saturate": 1}


def tidy_quantized(model: ir.Model) -> None:
    """Rewrites the model in place, as this module says."""
    for node in model.graph:
        if read.is_quantize(node) or read.is_dequantize(node):
            _drop_defaults(node)
    infer_types(model)
    MeanToGlobalPool()(model)
    names = edit.FreeNames(model)
    for node in list(model.graph):  # marks behind which nothing is quantized; others stay as copies
        if node.op_type == MARK and len(node.inputs) == 1 and not _reaches_integers(node):
            edit.bypass(node)
    share_equal(model)

    def each(*steps: Callable[[ir.Node], None]) -> None:
        for node in list(model.graph):
            for step in steps:
                step(node)

    each(lambda node: store_narrow(node, names), lambda node: store_integers(node, names))
    each(lambda node: take_divisor(node, names), lambda node: fold_norm(node, names))
    each(lambda node: _turn_weight(node, names))
    store_unsigned(model, names)
    each(lambda node: fold_clamps(node, names), lambda node: quantize_before(node, names))
    each(lambda node: fold_clamps(node, names))
    each(lambda node: store_bias(node, names))
    name_integers(model, names)
    each(drop_round_trip)
    each(lambda node: onto_qparams(node, names))
    each(drop_round_trip, check_bias)
    each(lambda node: lower_layer(node, names))
    name_outputs(model, names)
    RemoveUnused()(model)
    keep_loadable(model)
    keep_float_matmul(model)


def as_format(model: ir.Model, format: str) -> ir.Model:
    """The model in that form, and with the form in its metadata."""
    made = FORMATS[format](model, Int8Activations.SHIFTED)
    made.metadata_props[FORMAT_KEY] = format
    return made


def output_scales(model: ir.Model) -> list[tuple[str, float | None]]:
    """Name and scale of each output; None where it does not come from integers."""
    found: list[tuple[str, float | None]] = []
    for value in model.graph.outputs:
        qparams = read.one_scale(read.dequantizer(value))
        found.append((str(value.name), None if qparams is None else float(qparams.scale)))
    return found


def holds_integers(model: ir.Model) -> bool:
    """Whether anything in the model is quantized."""
    return any(
        read.is_quantize(node) or read.is_dequantize(node) or node.op_type == MATMUL_NBITS
        for node in model.graph
    )


def count_quantizers(model: ir.Model) -> int:
    """Number of tensors that are quantized when the model runs."""
    running = [node for node in model.graph if not _is_constant(node)]
    return sum(_ROUNDED.get(node.op_type, 0) for node in running)


def computes_in_threads(model: ir.Model) -> bool:
    """Whether its numbers depend on the number of threads: each thread's rows get a scale."""
    return any(node.op_type == "DynamicQuantizeLSTM" for node in model.graph)


def _is_constant(node: ir.Node) -> bool:
    x = node.inputs[0] if node.inputs else None
    return read.is_quantize(node) and x is not None and x.is_initializer()


def _drop_defaults(node: ir.Node) -> None:
    """Removes attributes that say nothing: the exporter writes all of them."""
    for name, default in _DEFAULTS.items():
        if name in node.attributes and node.attributes[name].value == default:
            del node.attributes[name]
    if _is_number(read.array_of(node, read.SCALE)):
        node.attributes.pop("axis", None)


def _is_number(array: Array | None) -> bool:
    """Whether it has rank 0: a scale of shape (1,), of a weight of one channel, keeps its axis."""
    return array is not None and array.ndim == 0


def _reaches_integers(node: ir.Node) -> bool:
    seen, waiting = {node}, [node]
    while waiting:
        for output in waiting.pop().outputs:
            for reader in output.consumers():
                if read.is_quantize(reader):
                    return True
                if reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
    return False


def _turn_weight(node: ir.Node, names: edit.FreeNames) -> None:
    """Transposes a constant, or that of a DQ, here; the axis of its scales moves with it."""
    perm = node.attributes.get_ints("perm")
    if node.op_type != "Transpose" or perm is None:
        return
    source = read.dequantizer(node.inputs[0])
    integers = node.inputs[0] if source is None else source.inputs[0]
    if integers is None or not integers.is_initializer() or integers.const_value is None:
        return
    if source is not None and not _can_turn(source):
        return
    array = np.ascontiguousarray(np.transpose(integers.const_value.numpy(), perm))
    turned = edit.new_constant(node, names.value(f"{integers.name}_transposed"), array)
    if source is None:
        node.outputs[0].replace_all_uses_with(turned)
        return
    graph_qparams = _turned(source, perm)
    name = names.node(f"{node.name}_dequantize")
    edit.replace(node, graph_qparams.dequantize(turned, name), names)


def _can_turn(source: ir.Node) -> bool:
    found = read.qparams_of(source)
    return isinstance(found, QParams) and not isinstance(found.granularity, PerBlock)


def _turned(source: ir.Node, perm: Sequence[int]) -> GraphQParams:
    """The qparams of a DQ whose integers are transposed."""
    qparams = read.qparams_of(source)
    assert isinstance(qparams, QParams), "_turn_weight looked"
    if _is_number(read.array_of(source, read.SCALE)):
        return graph_qparams_of(source, qparams)
    axis = source.attributes.get_int("axis", read.DEFAULT_AXIS)
    attributes = {"axis": list(perm).index(axis % len(perm))}
    return dataclasses.replace(graph_qparams_of(source, qparams), attributes=attributes)


# --- Names of integers and of what they stand for, as onnxq writes them everywhere


_OWN_NAMES = ("dequantize_linear", "leave_integers")  # after operators that are no model's own


def name_integers(model: ir.Model, names: edit.FreeNames) -> None:
    """`<tensor>_quantized` and `<tensor>_dequantized`, as onnxq writes them everywhere."""
    for node in model.graph:
        if not read.is_quantize(node) or node.inputs[0] is None:
            continue
        integers = _last_integers(node)
        if integers.is_graph_output():
            continue
        stem = node.inputs[0].name
        integers.name = names.value(f"{stem}_quantized")
        for reader in integers.consumers():
            if read.is_dequantize(reader) and not reader.outputs[0].is_graph_output():
                reader.outputs[0].name = names.value(f"{stem}_dequantized")


def name_outputs(model: ir.Model, names: edit.FreeNames) -> None:
    """An output that comes from integers is called as the float tensor that they stand for."""
    for value in model.graph.outputs:
        source = read.dequantizer(value)
        if source is None or not str(value.name).startswith(_OWN_NAMES):
            continue
        integers = source.inputs[0]
        while integers is not None and integers.producer() is not None:
            producer = integers.producer()
            assert producer is not None
            if not (read.is_quantize(producer) or producer.op_type == "Clip"):
                break
            integers = producer.inputs[0]
        if (
            integers is None
            or integers.name is None
            or integers.is_graph_input()
            or integers.is_graph_output()
        ):
            continue
        stem = integers.name
        integers.name = names.value(f"{stem}_float")
        value.name = stem


def _last_integers(quantizer: ir.Node) -> ir.Value:
    """The integers behind a Clip on integers."""
    integers = quantizer.outputs[0]
    readers = list(integers.consumers())
    while len(readers) == 1 and readers[0].op_type == "Clip":
        integers = readers[0].outputs[0]
        readers = list(integers.consumers())
    return integers


# --- Integer biases must be at the scale of the sums that they are added to


WITH_BIAS = ("Conv", "Gemm", "ConvTranspose")
SAME = 1e-6  # relative: float32 products may have been rounded in another order


def check_bias(node: ir.Node) -> None:
    """Passes a node whose bias is at x_scale * w_scale: ONNX Runtime adds its integers as is."""
    if node.op_type not in WITH_BIAS or len(node.inputs) <= read.BIAS:
        return
    sources = [read.dequantizer(value) for value in node.inputs[: read.BIAS + 1]]
    x, w, b = (None if source is None else read.qparams_of(source) for source in sources)
    if not (isinstance(x, QParams) and isinstance(w, QParams) and isinstance(b, QParams)):
        return
    wanted = sum_scale(x, w)
    if wanted.ndim:  # groups of a transposed convolution share scales
        wanted = np.tile(wanted, max(b.scale.size // wanted.size, 1))
    if np.allclose(b.scale, wanted, rtol=SAME, atol=0):
        return
    stored, wanted = np.broadcast_arrays(b.scale, wanted)
    index = int(np.argmax(np.abs(stored / wanted - 1)))
    source = sources[read.BIAS]
    integers = None if source is None else source.inputs[0]
    raise ModelError(
        f"bias '{'' if integers is None else integers.name}' is stored at scale "
        f"{stored.flat[index]:.6g}; its input and weight have {wanted.flat[index]:.6g}. Give "
        f"set_weight_bias the input_scale {float(x.scale.flat[0]):.6g} of the tensor that the "
        "layer reads."
    )


# --- Equal quantizers of a tensor become one
#
#     x -> Q -> DQ, x -> Q -> DQ     becomes   x -> Q -> DQ, DQ
#
# ONNX Runtime runs what computes x in integers if one Q, and nothing else, reads it. Modules that
# quantize their inputs say the same Q once for each reader of a tensor.


def share_equal(model: ir.Model) -> None:
    """Leaves one of equal Q of a tensor, and of equal Clips of the same integers, in place."""
    edit.merge_equal(model.graph, _said)


def _said(node: ir.Node) -> Hashable | None:
    if read.is_quantize(node):
        qparams = read.qparams_of(node)
        return (node.inputs[0], qparams) if isinstance(qparams, QParams) else None
    if node.op_type != "Clip" or node.domain:
        return None
    limits = [read.array_of(node, slot) for slot in (1, 2)]
    if any(end is None for end in limits):
        return None
    return (node.inputs[0], *(end.item() for end in limits if end is not None))


# --- Relu and Clip before a QuantizeLinear: its integers carry them out


def fold_clamps(node: ir.Node, names: edit.FreeNames) -> None:
    """Q(clip(x)) = clip(Q(x)): a Clip on integers takes its place, where it cuts integers off."""
    qparams = read.one_scale(node) if read.is_quantize(node) else None
    if qparams is None:
        return
    x = node.inputs[0]
    clamps: list[ir.Node] = []
    low, high = -np.inf, np.inf
    producer = None if x is None else x.producer()
    while producer is not None and edit.sole_reader(producer.outputs[0]) is not None:
        bounds = _bounds(producer)
        if bounds is None:
            break
        # what comes later clips what came earlier
        limits = np.clip(np.array(bounds), low, high)
        low, high = (float(end) for end in limits)
        clamps.append(producer)
        above = producer.inputs[0]
        assert above is not None
        x, producer = above, above.producer()
    if not clamps:
        return
    if read.is_dequantize(producer):
        return  # a clamp of integers of another scale: it stays where it is
    node.replace_input_with(0, x)
    for clamp in clamps:
        edit.graph_of(clamp).remove(clamp, safe=True)
    integers = integer_bounds((low, high), qparams)
    if integers != (qparams.dtype.qmin, qparams.dtype.qmax):
        _clip_behind(node, qparams.dtype, integers, names)


def _clip_behind(
    quantizer: ir.Node, dtype: QDType, bounds: tuple[int, int], names: edit.FreeNames
) -> None:
    value = quantizer.outputs[0]
    new = constants_of(quantizer, names)
    node = clip_integers(value, dtype, bounds, str(value.name), new)
    node.name = names.node(f"{quantizer.name}_clip")
    result = node.outputs[0]
    result.name = names.value(f"{value.name}_clipped")
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    node.replace_input_with(0, value)
    edit.insert_behind(value, node, edit.graph_of(quantizer))


def _bounds(node: ir.Node) -> tuple[float, float] | None:
    """Bounds that the node clips its input to; None where it does something else."""
    rule = catalog.rule_of(node)
    return rule.clamp if rule is not None and rule.category is OpCategory.CLAMP else None
