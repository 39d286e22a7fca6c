"""Files with Q and DQ from other tools, in the form that ONNX Runtime runs in integers.

    w (float) -> Q -> [Clip ->] DQ -> [Transpose]    becomes    w_quantized -> DQ
    Q -> Clip to all of the type -> DQ               becomes    Q -> DQ
    all else                                         as qdq.tidy says: int32 biases, uint8 ...

Every scale stays, and every number, but for biases, which become int32.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.errors import ModelError
from onnxq.graph.checks import FORMAT_KEY, check_for_any_machine
from onnxq.graph.edit import FreeNames, bypass, graph_of, new_constant, use_short_domain
from onnxq.graph.passes.float32 import ConvertToFloat32
from onnxq.graph.passes.fold_constants import FoldConstants
from onnxq.graph.passes.inline import InlineFunctions
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.passes.no_ops import RemoveNoOps
from onnxq.graph.passes.opset import UpgradeOpset
from onnxq.graph.passes.unused import RemoveInitializersFromInputs, RemoveUnused
from onnxq.graph.skeleton import read_attributes
from onnxq.graph.types import infer_types
from onnxq.graph.walk import value_name
from onnxq.operator.nodes import find_input, input_at
from onnxq.operator.site import MICROSOFT
from onnxq.ort.matmul_add import MatMulAdd, matmul_add
from onnxq.qdq import read
from onnxq.qdq.compact import compact, names_in
from onnxq.qdq.tidy import biases, check_bias, tidy_quantized
from onnxq.qdq.tidy.stored_constants import store_integers
from onnxq.qdq.wide_weights import BYTES, MULTIPLYING, multiplies_integers, widen_weights
from onnxq.qparams import QParams
from onnxq.targets import Target

NOT_NEGATIVE = ("Relu", "Clip", "Sigmoid", "HardSigmoid", "Softmax", "MaxPool")


class Clipping(enum.Enum):
    """Bounds of ranges that stay where rounding goes."""

    ALL = "as a Clip"
    ZERO = "as a Relu, where the range begins at 0; as a Clip, where it has fewer integers"


class WhyNoIntegers(enum.Enum):
    """Reasons for which a node with a rounded weight computes in float."""

    NO_SCALE = "the file has no scale for what they read or give"
    INPUT_TYPE = "ONNX Runtime multiplies inputs of 8 bits in integers, and theirs have other types"
    WEIGHT_TYPE = "ONNX Runtime multiplies weights of 8 bits in integers, and theirs have others"


@dataclass(frozen=True, slots=True, eq=False)
class ImportedQuantizer:
    """A tensor that the file rounds when it runs.

    Attributes:
        quantizer: the QuantizeLinear.
        readers: DequantizeLinear of its integers.
        qparams: one scale and zero point.
        bounds: least and largest integer.
    """

    quantizer: ir.Node
    readers: tuple[ir.Node, ...]
    qparams: QParams
    bounds: tuple[int, int]


def read_imported(model: ir.Model) -> ir.Model:
    """A copy with names, types and constants as the later steps want them; Q and DQ stay."""
    copy = model.clone()
    use_short_domain(copy)
    read_attributes(copy)
    for first in (
        RemoveInitializersFromInputs(),
        InlineFunctions(),
        UniqueNames(),
        UpgradeOpset(),
        LiftConstants(),
        UniqueNames(),
        ConvertToFloat32(),
    ):
        first(copy)
    infer_types(copy)
    for then in (
        RemoveNoOps(),
        FoldConstants(kept=(read.DEQUANTIZE,)),
        RemoveUnused(),
        UniqueNames(),
    ):
        then(copy)
    names = FreeNames(copy)
    for node in list(copy.graph):
        _set_min_max(node, names)
        _drop_idle_clip(node)
        _take_number(node, names)
    for node in list(copy.graph):
        store_integers(node, names)
        _dequantize_bias(node, names)
    RemoveUnused()(copy)
    return copy


def check_imported(model: ir.Model) -> None:
    """Passes a file with Q and DQ that onnxq did not write."""
    if made := model.metadata_props.get(FORMAT_KEY):
        raise ModelError(
            f"import-qdq: onnxq wrote this file, as '{made}'; nothing is changed. Run it as it is."
        )
    if not _rounds_activations(model):
        check_for_any_machine(model)
        raise ModelError(
            "import-qdq: the model has no QuantizeLinear of activations. A float file, or one "
            "whose weights alone are integers, is for `onnxq quantize`, `quantize-dynamic` or "
            "`quantize-weights`."
        )


def _rounds_activations(model: ir.Model) -> bool:
    """Whether it has a QuantizeLinear, or a DequantizeLinear of what comes from an input."""
    fed = {value for value in model.graph.inputs if value.name not in model.graph.initializers}
    for node in model.graph:
        if not fed.isdisjoint(node.inputs):
            if read.is_dequantize(node) and node.inputs[0] in fed:
                return True
            fed.update(node.outputs)
    return any(map(read.is_quantize, model.graph.all_nodes()))


def in_integers(given: ir.Model, target: Target) -> tuple[ir.Model, int]:
    """A copy in the form that ONNX Runtime runs in integers; how many weights became uint8.

    Args:
        given: of `read_imported`.
        target: where pairs of products of uint8 by int8 saturate, larger int8 weights become uint8,
            of the same numbers: their kernels are exact, and slower than int8's elsewhere.
    """
    made = given.clone()
    tidy_quantized(made)
    wide = widen_weights(made, target)
    names = FreeNames(made)
    for node in list(made.graph):
        found = matmul_add(node)
        if found is not None and multiplies_integers(node) and not _is_rounded(found):
            _write_matmul(made, found, names)
    RemoveUnused()(made)
    compact(made, names_in(given))
    return made, wide


def _is_rounded(found: MatMulAdd) -> bool:
    """Whether a Q follows, with which ONNX Runtime makes an integer kernel of both."""
    readers = [use.node for use in found.add.outputs[0].uses()]
    alone = len(readers) == 1 and not found.add.outputs[0].is_graph_output()
    return not (found.becomes_gemm or found.adds_vector) or (alone and read.is_quantize(readers[0]))


def _write_matmul(model: ir.Model, found: MatMulAdd, names: FreeNames) -> None:
    """MatMulIntegerToFloat in place of a MatMul that ONNX Runtime would make a float Gemm of."""
    model.opset_imports.setdefault(MICROSOFT, 1)
    x, weight = (read.dequantizer(value) for value in found.matmul.inputs)
    assert x is not None
    assert weight is not None
    slots = [x.inputs[0], weight.inputs[0], x.inputs[read.SCALE], weight.inputs[read.SCALE]]
    slots += [find_input(x, read.ZERO_POINT), find_input(weight, read.ZERO_POINT)]
    last = found.add if found.adds_vector else found.matmul
    if found.adds_vector:
        slots.append(found.bias)
    made = ir.node("MatMulIntegerToFloat", slots, domain=MICROSOFT, name=names.node(str(last.name)))
    (result,), (old,) = made.outputs, last.outputs
    result.type, result.shape = old.type, old.shape
    graph_of(last).insert_before(last, made)
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    result.name, old.name = old.name, None
    for node in (found.add, found.matmul)[not found.adds_vector :]:
        graph_of(node).remove(node, safe=True)


def quantizers(given: ir.Model) -> Iterator[ImportedQuantizer]:
    """Tensors that run time rounds to one scale, in the order of the main graph."""
    for node in given.graph:
        qparams = read.one_scale(node) if read.is_quantize(node) else None
        x = node.inputs[0] if node.inputs else None
        if qparams is None or x is None or x.is_initializer():
            continue
        integers, bounds = node.outputs[0], (qparams.dtype.qmin, qparams.dtype.qmax)
        (reader, *others) = [use.node for use in integers.uses()] or [node]
        limits = None if others else _limits(reader)
        if limits is not None:
            integers, bounds = reader.outputs[0], limits
        readers = [use.node for use in integers.uses()]
        if readers and all(map(read.is_dequantize, readers)) and not integers.is_graph_output():
            yield ImportedQuantizer(node, tuple(readers), qparams, bounds)


def float_beside_integers(model: ir.Model) -> dict[WhyNoIntegers, list[str]]:
    """Reason -> names of nodes with a rounded weight that compute in float for it."""
    found: dict[WhyNoIntegers, list[str]] = {}
    for node in model.graph:
        weight = read.dequantizer(node.inputs[1]) if len(node.inputs) > 1 else None
        if node.op_type not in MULTIPLYING or weight is None or not read.is_constant(weight):
            continue
        readers = [use.node for use in node.outputs[0].uses()]
        rounds = len(readers) == 1 and read.is_quantize(readers[0])
        to_float = node.op_type != "Conv"  # a MatMul has a kernel with float results
        if not multiplies_integers(node) or not (rounds or to_float):
            found.setdefault(_why_float(node, weight), []).append(str(node.name))
    return found


def _why_float(node: ir.Node, weight: ir.Node) -> WhyNoIntegers:
    if read.integer_type(weight) not in BYTES:
        return WhyNoIntegers.WEIGHT_TYPE
    x = read.dequantizer(node.inputs[0])
    if x is not None and not read.is_constant(x) and read.integer_type(x) not in BYTES:
        return WhyNoIntegers.INPUT_TYPE
    return WhyNoIntegers.NO_SCALE


def unrounded(given: ir.Model, clipping: Clipping) -> tuple[ir.Model, dict[str, QParams]]:
    """A copy that computes in float between the weights; tensor -> qparams that it had.

    Args:
        given: of `read_imported`.
        clipping: which bounds of ranges stay.
    """
    made = given.clone()
    names = FreeNames(made)
    scales = {}
    for found in list(quantizers(made)):
        x = found.quantizer.inputs[0]
        assert x is not None
        clip = _clipped if clipping is Clipping.ALL else _without_negative
        result = clip(found, x, names)
        scales[value_name(result)] = found.qparams
        for reader in found.readers:
            _give(reader, result)
    RemoveUnused()(made)
    return made, scales


def _give(reader: ir.Node, result: ir.Value) -> None:
    """Readers of a DequantizeLinear get the result; an output of the graph keeps its name."""
    old = reader.outputs[0]
    if not old.is_graph_output():
        old.replace_all_uses_with(result)
        return
    copy = ir.node("Identity", [result], name=f"{reader.name}_output")
    graph_of(reader).insert_before(reader, copy)
    (named,) = copy.outputs
    named.type, named.shape = old.type, old.shape
    old.replace_all_uses_with(named, replace_graph_outputs=True)
    named.name, old.name = old.name, None


def _clipped(found: ImportedQuantizer, x: ir.Value, names: FreeNames) -> ir.Value:
    scale, zero = np.float32(found.qparams.scale), int(found.qparams.zero_point)
    ends = [np.float32(end - zero) * scale for end in found.bounds]
    stem = f"{x.name}_end"
    limits = [new_constant(found.quantizer, names.value(stem), np.asarray(end)) for end in ends]
    return _behind(found, ir.node("Clip", [x, *limits]), x, names)


def _without_negative(found: ImportedQuantizer, x: ir.Value, names: FreeNames) -> ir.Value:
    """Relu where the integers begin at 0, and the numbers may not; Clip where there are few."""
    producer = x.producer()
    if found.bounds != (found.qparams.dtype.qmin, found.qparams.dtype.qmax):
        return _clipped(found, x, names)
    if found.bounds[0] < int(found.qparams.zero_point):
        return x
    if producer is not None and producer.op_type in NOT_NEGATIVE:
        return x
    return _behind(found, ir.node("Relu", [x]), x, names)


def _behind(found: ImportedQuantizer, made: ir.Node, x: ir.Value, names: FreeNames) -> ir.Value:
    made.name = names.node(f"{x.name}_{made.op_type.lower()}")
    (result,) = made.outputs
    result.name, result.type, result.shape = names.value(made.name), x.type, x.shape
    graph_of(found.quantizer).insert_before(found.quantizer, made)
    return result


def _limits(node: ir.Node) -> tuple[int, int] | None:
    """Bounds of a Clip by constants; None: it is none."""
    if node.op_type != "Clip" or node.domain:
        return None
    low, high = read.array_of(node, 1), read.array_of(node, 2)
    return None if low is None or high is None else (int(low), int(high))


def _set_min_max(node: ir.Node, names: FreeNames) -> None:
    """Writes the ends that a Clip on integers leaves out: those of the type."""
    source = node.inputs[0].producer() if node.op_type == "Clip" and node.inputs[0] else None
    qparams = read.qparams_of(source) if read.is_quantize(source) else None
    if node.domain or not isinstance(qparams, QParams):
        return
    node.resize_inputs(3)
    for slot, end in ((1, qparams.dtype.qmin), (2, qparams.dtype.qmax)):
        if node.inputs[slot] is None:
            array = np.asarray(end, qparams.dtype.storage)
            name = names.value(f"{node.outputs[0].name}_end")
            node.replace_input_with(slot, new_constant(node, name, array))


def _dequantize_bias(node: ir.Node, names: FreeNames) -> None:
    """Replaces an integer bias at another scale than x_scale * w_scale by its real numbers."""
    try:
        check_bias(node)
    except ModelError:
        if (bias := biases.real_bias(node)) is not None:
            node.replace_input_with(2, new_constant(node, names.value(f"{node.name}_bias"), bias))


def _take_number(node: ir.Node, names: FreeNames) -> None:
    """Gives one scale the shape (): ONNX Runtime makes kernels that refuse its shape (1,)."""
    if not (read.is_quantize(node) or read.is_dequantize(node)) or read.one_scale(node) is None:
        return
    for slot in (read.SCALE, read.ZERO_POINT):
        array = read.array_of(node, slot) if find_input(node, slot) is not None else None
        if array is not None and array.ndim:
            name = names.value(f"{input_at(node, slot).name}_number")
            node.replace_input_with(slot, new_constant(node, name, array.reshape(())))
    node.attributes.pop("axis", None)


def _drop_idle_clip(node: ir.Node) -> None:
    """Takes out a Clip on integers to all that their type holds."""
    x = node.inputs[0] if node.inputs else None
    source = None if x is None else x.producer()
    limits = _limits(node) if read.is_quantize(source) else None
    qparams = read.qparams_of(source) if limits is not None and source is not None else None
    if isinstance(qparams, QParams) and limits is not None:
        low, high = qparams.dtype.qmin, qparams.dtype.qmax
        if limits[0] <= low and limits[1] >= high:
            bypass(node)
