"""A float16 model as one call: what overflows, adds up or loses its numbers stays float32.

model --ranges on samples--> kept nodes --as_float16--> model --beside float32--> more kept nodes
"""

import enum
import itertools
import math
import warnings
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from operator import itemgetter

import numpy as np
import onnx_ir as ir

from onnxq.checking.beside_given import Inputs
from onnxq.checking.check import Check
from onnxq.checking.comparison import Comparison
from onnxq.checking.runnable import Made, runnable, timed_in_pairs
from onnxq.checking.summary import Summary
from onnxq.checking.validation import Batch, Validation, refusal
from onnxq.core.arrays import Array
from onnxq.core.stopwatch import Stopwatch
from onnxq.errors import (
    ModelError,
    NothingQuantizedError,
    QConfigError,
    UnsupportedError,
    counted,
    member,
    nearest,
)
from onnxq.graph.checks import check_computes_in_float, check_for_any_machine
from onnxq.graph.edit import FreeNames
from onnxq.graph.io import load
from onnxq.graph.passes.float32 import ConvertToFloat32
from onnxq.graph.passes.inline import InlineFunctions
from onnxq.graph.passes.lift_constants import LiftConstants
from onnxq.graph.passes.names import UniqueNames
from onnxq.graph.types import infer_types
from onnxq.graph.walk import bodies, node_name
from onnxq.operator import Float
from onnxq.ort import runtime
from onnxq.ort.expose import expose
from onnxq.ort.float16 import FATAL, as_float16, is_fatal
from onnxq.quantized.quantized_model import QuantizedModel
from onnxq.quantized.verdict import InputSource
from onnxq.static.prepared import ModelSource
from onnxq.tuning.scoring.paired_outputs import PairedOutputs
from onnxq.weight_only import quantize_weights

LARGEST = 65504.0 / 2
"""Magnitude that a tensor may reach on samples: half of float16's largest, for inputs unseen."""
SMALLEST = 2.0**-14
"""Smallest normal number of float16; a tensor without a larger one loses digits."""
ADDS = ("Add", "Clip", "Max", "Min", "Sub", "Sum")
"""Operators that make of a lost digit of a constant no more than that."""
GOOD_DB = 40.0
"""SQNR of outputs and their parts that keeps no further node; float16 has 73 dB for a number."""
LOST_DB = 10.0
"""Loss of a node from which on it is kept, where an output or a part is below GOOD_DB."""
HALF_DB = 3.0
"""Half of the noise: least gain, and margin to what passes noise on, twice as wide each round."""
ROUNDS, MOST_BATCHES = 8, 16
FEW_TENSORS, MOST_SESSIONS = 64, 8
WANT_FLOAT32 = {
    "sum": "CumSum ReduceL1 ReduceL2 ReduceMean ReduceProd ReduceSum",
    "norm": "BatchNormalization GroupNormalization InstanceNormalization LayerNormalization "
    "LpNormalization RMSNormalization ReduceSumSquare SimplifiedLayerNormalization "
    "SkipLayerNormalization SkipSimplifiedLayerNormalization",
    "exp": "Exp Log LogSoftmax Pow Reciprocal ReduceLogSum ReduceLogSumExp Softmax",
}
"""Reason -> operators that want more than float16."""


class IoType(enum.Enum):
    """Type of the inputs and outputs that were float32."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"


def half(
    model: ModelSource,
    samples: object = None,
    *,
    weight_bits: int | None = None,
    keep: Collection[str] = (),
    io_type: IoType | str = IoType.FLOAT32,
) -> QuantizedModel:
    """The model in float16, with a verdict: half the size, for providers that compute in it.

    Sums, norms and exponentials stay float32, and what is too large or small for float16 on the
    samples. Where an output is below 40 dB, so do nodes that lose most and those that round what
    they read, with half of the weights at most. On CPUs it gains size, and seldom time.

    Args:
        model: path, ModelProto or onnx_ir.Model, float32 or bfloat16; it is not changed.
        samples: to find such numbers on, and to compare both on; None: made-up inputs.
        weight_bits: 2, 4 or 8: layers get group-wise weights first, as `quantize_weights` makes
            them (q4f16); None: float16 weights.
        keep: names or globs of nodes that stay float32.
        io_type: type of the model's inputs and outputs, "float32" or "float16".
    Raises:
        ModelError: the model has no float32 or bfloat16 numbers, or NaN in a weight; ONNX Runtime
            does not run it, or the result.
        NothingQuantizedError: every node would stay float32.
        CalibrationError: unusable samples.
        QConfigError: a name in `keep` that the model does not have; an unknown type or bits.
        UnsupportedError: more than 2 GB of weights; an output that no node computes.
    Warns:
        UserWarning: an output is far from the float model's.
    """
    work, io = Stopwatch(), member(IoType, io_type, "io_type")
    given = _named(load(model))
    _to_float32(given, weight_bits)
    inputs = Inputs.of(samples, given, InputSource.CALIBRATION)
    source = given
    if weight_bits is not None:
        source = _named(quantize_weights(given, bits=weight_bits, check=Check.NONE))
    kept = dict.fromkeys(_asked(source, keep), "asked for") | _by_type(source)
    batches = inputs.batches[:MOST_BATCHES]
    kept |= _by_range(source, batches)
    _check_float32_weights(source, kept)
    kept |= _by_loss(source, kept, batches) if batches else {}
    try:
        made = _runnable(source, kept, Validation(given, inputs.source, batches, work=work))
    except ModelError as error:
        raise ModelError(f"half: {error}") from error
    result, kept, verdict = made.model, made.plan, made.model.verdict
    assert verdict is not None, "it was run"
    if io is IoType.FLOAT16:
        result = QuantizedModel.of(as_float16(source, kept, keeps_io=False))
        if why := refusal(result, batches[0] if batches else None):
            raise ModelError(f"half: {why}")
    names = {node_name(node) for node in source.graph.all_nodes()}
    if weight_bits is None and names <= kept.keys():
        raise NothingQuantizedError(f"half: {_note(source, kept)}. Use the float model.")
    integers = sum(made.execution.integer_nodes.values()) if made.execution else 0
    verdict = replace(
        verdict,
        integer_nodes=integers,
        float_nodes=len(names) - integers,
        stored_nodes=len(names - kept.keys()),
        notes=(*verdict.notes, _note(source, kept)),
    )
    made.model.attach(verdict)
    verdict = timed_in_pairs(given, made, work.spent_s).model.verdict or verdict
    result.attach(verdict)
    if verdict.warning:
        warnings.warn(verdict.warning, UserWarning, stacklevel=2)
    return result


def _named(model: ir.Model) -> ir.Model:
    """A copy without functions whose names are unique, its types known as far as they can be."""
    copy = model.clone()
    copy.meta.update(model.meta)  # the size of its file
    for step in (InlineFunctions(), UniqueNames(), LiftConstants(), UniqueNames()):
        step(copy)
    check_for_any_machine(copy)
    check_computes_in_float(copy)
    infer_types(copy)
    return copy


def _to_float32(model: ir.Model, weight_bits: int | None) -> None:
    """Passes a model with float32 numbers; makes them of bfloat16, and of what gets fewer bits."""
    tensors = [v for graph in model.graphs() for v in graph.initializers.values()]
    types = {v.dtype for v in (*model.graph.inputs, *tensors)}
    if ir.DataType.BFLOAT16 in types or weight_bits is not None:  # bfloat16 has no CPU kernels
        ConvertToFloat32()(model)
    elif ir.DataType.FLOAT not in types:
        raise ModelError(
            "half: the model has no float32 or bfloat16 numbers; it may be float16 or float64."
        )
    ends = [y for y in model.graph.outputs if y.dtype == ir.DataType.FLOAT]
    idle = [str(y.name) for y in ends if y.producer() is None]
    if idle:
        raise UnsupportedError(f"half: no node computes output '{idle[0]}'; leave it out.")


def _check_float32_weights(model: ir.Model, kept: Collection[str]) -> None:
    """Refuses a model whose weights are float16, but those of nodes that stay float32."""
    weights = [v for graph in model.graphs() for v in graph.initializers.values()]
    large = [v for v in weights if v.const_value is not None and v.const_value.size > 1]
    is_left = any(
        v.dtype == ir.DataType.FLOAT and any(node_name(use.node) not in kept for use in v.uses())
        for v in large
    )
    if not is_left and any(v.dtype == ir.DataType.FLOAT16 for v in large):
        raise ModelError(
            "half: the weights are float16 already, and nothing is changed. Run it as it is."
        )


def _asked(model: ir.Model, patterns: Collection[str]) -> Iterator[str]:
    names = [node_name(node) for node in model.graph.all_nodes()]
    for pattern in patterns:
        found = [name for name in names if name == pattern or fnmatchcase(name, pattern)]
        if not found:
            raise QConfigError(f"keep: the model has no node '{pattern}'.{nearest(pattern, names)}")
        yield from found


def _by_type(model: ir.Model) -> dict[str, str]:
    """Node -> why its operator wants more than float16."""
    found = {
        node_name(node): reason
        for node in model.graph.all_nodes()
        for reason, op_types in WANT_FLOAT32.items()
        if node.op_type in op_types.split()
    }
    moved = {node_name(node): FATAL for node in model.graph.all_nodes() if is_fatal(node)}
    return found | moved


def _by_range(model: ir.Model, batches: Sequence[Batch]) -> dict[str, str]:
    """Node -> which of its numbers leave float16."""
    largest: dict[str, float] = {}
    for value in model.graph.initializers.values():
        if value.dtype == ir.DataType.FLOAT and value.const_value is not None:
            array = value.const_value.numpy()
            if array.size > 1 and np.isnan(array).any():
                raise ModelError(f"half: weight '{value.name}' holds NaN; repair the model.")
            largest[str(value.name)] = _largest(array)
    for batch in batches:
        for name, array in _computed(model, batch):
            largest[name] = max(largest.get(name, 0.0), _largest(array))
    found: dict[str, str] = {}
    for node in model.graph:
        added = [*(node.inputs if node.op_type in ADDS else node.inputs[2:])]  # biases
        for x in (*node.inputs, *node.outputs):
            reached = 0.0 if x is None else largest.get(str(x.name), 0.0)
            is_constant = x is not None and x.is_initializer()
            if reached > LARGEST:
                found[node_name(node)] = _overflow(node, reached)
            elif 0 < reached < SMALLEST and not (is_constant and x in added):
                found.setdefault(node_name(node), f"underflow ({reached:.3g})")
    return found


def _overflow(node: ir.Node, reached: float) -> str:
    """Reason of a node that overflows; one with bodies is refused, whose ends are float16."""
    if bodies(node):
        raise UnsupportedError(f"half: overflow ({reached:.3g}) in or out of bodies, {node.name}.")
    return f"overflow ({reached:.3g})"


def _largest(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max(initial=0.0))


def _computed(model: ir.Model, batch: Batch) -> Iterator[tuple[str, Array]]:
    """Name and numbers of every float tensor of the main graph, some at a time."""
    names = [str(y.name) for node in model.graph for y in node.outputs if _is_float(y)]
    count = max(FEW_TENSORS, -(-len(names) // MOST_SESSIONS))  # each opens the whole model
    for start in range(0, len(names), count):
        exposed = expose(model, names[start : start + count])
        (results,) = _outputs(exposed.model, [batch], exposed.outputs)
        yield from results.items()


def _is_float(value: ir.Value) -> bool:
    is_tensor = isinstance(value.type, ir.TensorType)
    return is_tensor and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _by_loss(model: ir.Model, kept: Mapping[str, str], batches: Sequence[Batch]) -> dict[str, str]:
    """Node -> reason, for the fewest weights that bring outputs to GOOD_DB, and half at most."""
    wanted = _outputs(model, batches)
    found: set[ir.Node] = set()
    for number in range(ROUNDS):
        every = {*kept, *map(node_name, found)}
        rounded = _rounded(model, every)
        db, batch = _worst(wanted, rounded, batches)
        if db >= GOOD_DB:
            break
        lost = _lossy(model, _sqnr(model, rounded, batch), every, HALF_DB * 2**number)
        if not lost:
            break
        found |= lost
    small_first = sorted(found, key=lambda node: (_weight_bytes(node), node_name(node)))
    free = sum(_weight_bytes(node) for node in model.graph if node_name(node) not in kept)
    sizes = itertools.accumulate(map(_weight_bytes, small_first))
    most = bisect_right([*sizes], free / 2)  # with more in float32, little is gained

    def first(count: int) -> list[str]:
        chosen = {*small_first[:count]}
        chosen |= _sharing(chosen)
        return [node_name(node) for node in small_first if node in chosen]

    def reached_db(count: int) -> float:
        return _worst(wanted, _rounded(model, [*kept, *first(count)]), batches)[0]

    enough = bisect_left(range(most), GOOD_DB, key=reached_db)  # `most`, where none is
    after_db = reached_db(enough) if enough else GOOD_DB
    if after_db < GOOD_DB and not after_db - reached_db(0) >= HALF_DB:  # NaN: -inf of both
        return {}  # what gains nothing is not kept
    return dict.fromkeys(first(enough), "precision")


def _weights(node: ir.Node) -> list[ir.Value]:
    read = [v for v in node.inputs if v and v.dtype == ir.DataType.FLOAT]
    return [v for v in read if v.const_value and v.const_value.size > 1]


def _weight_bytes(node: ir.Node) -> float:
    """Size of its weights, each shared out among the nodes that read it."""
    return sum(v.const_value.nbytes / len(v.uses()) for v in _weights(node) if v.const_value)


def _sharing(nodes: Iterable[ir.Node]) -> set[ir.Node]:
    """Nodes that read the weights of these: a weight is float32 for all or none."""
    return {use.node for node in nodes for v in _weights(node) for use in v.uses()}


def _runnable(
    source: ir.Model, kept: dict[str, str], validation: Validation
) -> Made[dict[str, str]]:
    """The model in float16 but for these nodes, and for those with which it does not run."""

    def make(left: Mapping[str, Float]) -> tuple[dict[str, str], QuantizedModel]:
        every = kept | dict.fromkeys(left, "with it in float16, ONNX Runtime does not run")
        return every, QuantizedModel.of(as_float16(source, every, keeps_io=True))

    def in_float16(every: Mapping[str, str]) -> list[str]:
        nodes = [node for node in source.graph if node_name(node) not in every]
        nodes.sort(key=lambda node: not any(v and v.is_initializer() for v in node.inputs))
        return [node_name(node) for node in nodes]  # those with weights first

    return runnable(make, in_float16, lambda _: Summary(()), validation)


def _rounded(model: ir.Model, kept: Collection[str]) -> ir.Model:
    """The model in float32 that rounds weights and every result to float16, as GPUs' kernels do.

    ONNX Runtime's CPU kernels compute several float16 nodes in float32 without rounding in between.
    """
    made = model.clone()
    for value in made.graph.initializers.values():
        weight = value.const_value
        is_kept = all(node_name(use.node) in kept for use in value.uses())
        if weight is not None and weight.dtype == ir.DataType.FLOAT and not is_kept:
            numbers = weight.numpy().astype(np.float16).astype(np.float32)
            value.const_value = ir.tensor(numbers, name=weight.name)
    names = FreeNames(made)
    for node in list(made.graph):
        for y in filter(_is_float, () if node_name(node) in kept else node.outputs):
            if y.dtype == ir.DataType.FLOAT and not y.is_graph_output():
                _round_result(made.graph, node, y, names)
    return made


def _round_result(graph: ir.Graph, node: ir.Node, y: ir.Value, names: FreeNames) -> None:
    """Readers get the numbers rounded, under the name of the result."""
    down = ir.node("Cast", [y], {"to": ir.DataType.FLOAT16.value})
    up = ir.node("Cast", [down.outputs[0]], {"to": ir.DataType.FLOAT.value})
    rounded = up.outputs[0]
    y.replace_all_uses_with(rounded)
    down.replace_input_with(0, y)
    graph.insert_after(node, [down, up])
    for each in (down, up):
        each.name = names.node(f"{y.name}_float16")
        each.outputs[0].name = names.value(f"{y.name}_float16")
    rounded.type, rounded.shape = y.type, y.shape
    rounded.name, y.name = y.name, rounded.name


def _sqnr(model: ir.Model, rounded: ir.Model, batch: Batch) -> dict[str, float]:
    """Tensor -> its dB in the rounded model; -inf where only that has NaN or Inf."""
    wanted, found = dict(_computed(model, batch)), {}
    for name, array in _computed(rounded, batch):
        if name in wanted and wanted[name].shape == array.shape:
            sums = Comparison()
            sums.update(wanted[name], array)
            differ = math.isnan(sums.sqnr_db) and sums.nonfinite_pairs < sums.elements
            found[name] = -math.inf if differ else sums.sqnr_db
    return found


def _outputs(
    model: ir.Model, batches: Sequence[Batch], named: Mapping[str, str] | None = None
) -> list[dict[str, Array]]:
    plain = runtime.Optimization.NONE
    with runtime.open_session(model, threads=1, optimization=plain) as session:
        return [session.run_named(batch, named) for batch in batches]


def _worst(
    wanted: Sequence[Mapping[str, Array]], rounded: ir.Model, batches: Sequence[Batch]
) -> tuple[float, Batch]:
    """Likeness of the worst part of an output on the worst batch, and that batch."""
    pairs = []
    for x, y, batch in zip(wanted, _outputs(rounded, batches), batches, strict=True):
        found = PairedOutputs()
        found.update(x, y)
        pairs.append((found.likeness_db, batch))
    return min(pairs, key=itemgetter(0))


def _lossy(
    model: ir.Model, sqnr: Mapping[str, float], kept: Collection[str], margin_db: float
) -> set[ir.Node]:
    """Nodes in float16 that lose most beside what they read, or pass on what kept ones read."""
    amplify = set()
    for node in model.graph:
        before, behind = (_least(sqnr, values) for values in (node.inputs, node.outputs))
        if not bodies(node) and behind < min(before, 2 * GOOD_DB) - LOST_DB:
            amplify.add(node)
    in_float32 = [node for node in amplify if node_name(node) in kept]
    found = amplify | _sources(model, in_float32, sqnr, margin_db)
    found |= _sharing(found)
    return {node for node in found if node_name(node) not in kept}


def _sources(
    model: ir.Model, nodes: Iterable[ir.Node], sqnr: Mapping[str, float], margin_db: float
) -> set[ir.Node]:
    """Nodes whose results are at most this much better than what these nodes read, and these."""
    limits = {node: _least(sqnr, node.inputs) + margin_db for node in nodes}
    for node in reversed(model.graph):
        limit = limits.get(node, np.inf)
        for x in node.inputs if limit < np.inf else ():
            source = x.producer() if x is not None and _least(sqnr, [x]) <= limit else None
            if source is not None:
                limits[source] = max(limit, limits.get(source, limit))
    return {*limits}


def _least(sqnr: Mapping[str, float], values: Iterable[ir.Value | None]) -> float:
    return min((sqnr.get(str(v.name), np.inf) for v in values if v is not None), default=np.inf)


def _note(model: ir.Model, kept: Mapping[str, str]) -> str:
    nodes = {node_name(node): node.op_type for node in model.graph.all_nodes()}
    left = Counter(f"{nodes[name]} ({reason})" for name, reason in kept.items() if name in nodes)
    said = [f"{count} {kind}" for kind, count in left.most_common()]
    if not said:
        return "all nodes are float16"
    made = len(nodes) - left.total()
    return f"{made} of {len(nodes)} nodes are float16; float32 stay: {counted(said)}"
