"""Precisions of nodes as a quantized file shows them, whoever wrote it, and as a plan names them.

reads integers, gives integers     int8                reads floats, weights are integers
dynamic_int8 reads integers, gives floats    int8_float_output   reads floats, weights dequantized
weight_only between integers of 16 bits     float_between_qdq   not in the file any more
inside another
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnxq.checking.findings import Execution
from onnxq.checking.summary import IN_INTEGER_KERNELS, NodeCounts
from onnxq.dynamic.dynamic_decision import DynamicDecision
from onnxq.graph.walk import node_name, stem_among, walk
from onnxq.operator import Float, Precision
from onnxq.operator.reasons import LeftByRequest
from onnxq.qdq.read import dequantizer, is_constant, is_dequantize, is_quantize
from onnxq.static.insertion.decision import Quantize
from onnxq.static.plan import Plan

LEAST_RANK = 2
"""Rank of a weight, at least; scales and zero points have less."""
INTEGERS = (ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.INT16)
LONG = (ir.DataType.UINT16, ir.DataType.INT16)
WORDS = {
    Precision.INT8: "the file has it between integers",
    Precision.INT8_FLOAT_OUTPUT: "in the file it reads integers and gives floats",
    Precision.DYNAMIC_INT8: "in the file its weights are integers, and its inputs are not",
    Precision.WEIGHT_ONLY: "its weights are integers in the file, dequantized ahead of it",
    Precision.FLOAT_BETWEEN_QDQ: "the file has it between integers of 16 bits",
    Precision.FLOAT: "the file has it in float",
    None: "the file has no node of its name: it is computed with a neighbour",
}
SEARCHED = "the search leaves it in float"


@dataclass(frozen=True, slots=True)
class ShownPrecision:
    """Precision of a node, and why it has it.

    Attributes:
        precision: None: inside of another node.
        reason: in words.
    """

    precision: Precision | None
    reason: str


def planned(plan: Plan) -> dict[str, ShownPrecision]:
    """Name of each node -> the precision that a plan gives it, with its reason."""
    found = {}
    for name, chosen in plan.precisions.items():
        decision = plan.decisions[name]
        if isinstance(decision, Quantize) and decision.folded_into:
            found[name] = ShownPrecision(None, f"computed with {decision.folded_into}")
        elif isinstance(decision, Float) and not chosen.precision.stores_weights_alone:
            found[name] = ShownPrecision(Precision.FLOAT, str(decision.reason))
        else:
            found[name] = ShownPrecision(chosen.precision, chosen.reason.words)
    return found


def searched(plan: Plan) -> dict[str, ShownPrecision]:
    """The same of a plan whose qconfig a search wrote: no user left nodes in float."""
    by_request = {
        name
        for name, decision in plan.decisions.items()
        if isinstance(decision, Float) and isinstance(decision.reason, LeftByRequest)
    }
    return {
        name: replace(each, reason=SEARCHED)
        if name in by_request and each.precision is Precision.FLOAT
        else each
        for name, each in planned(plan).items()
    }


def with_reasons(
    shown: Mapping[str, ShownPrecision], decisions: Mapping[str, DynamicDecision]
) -> dict[str, ShownPrecision]:
    """The precisions that a file shows, with the reasons of decisions on weights."""
    found = dict(shown)
    for name in shown.keys() & decisions.keys():
        decision = decisions[name]
        reason = decision.reason if isinstance(decision, Float) else decision.how
        found[name] = replace(shown[name], reason=reason.words)
    return found


def shown_by_file(source: ir.Model, target: ir.Model) -> dict[str, ShownPrecision]:
    """Name of each node of the float model -> the precision that the quantized file shows."""
    names = [node_name(node) for node, _ in walk(source.graph)]
    owned = _owned(target, set(names))
    precisions = {name: _precision(owned[name]) if name in owned else None for name in names}
    return {
        name: ShownPrecision(precision, WORDS[precision]) for name, precision in precisions.items()
    }


def _owned(target: ir.Model, names: set[str]) -> dict[str, list[ir.Node]]:
    """Nodes of the file by the float node that they carry out: of its name, or longer ones."""
    owned: dict[str, list[ir.Node]] = defaultdict(list)
    for node, _ in walk(target.graph):
        if is_quantize(node) or is_dequantize(node):
            continue
        if name := stem_among(node.name or "", names):
            owned[name].append(node)
    return owned


def _precision(nodes: list[ir.Node]) -> Precision:
    """Precision of a node that these carry out."""
    within = {value for node in nodes for value in node.outputs}
    read = [v for node in nodes for v in node.inputs if v is not None and v not in within]
    varying = [v for v in read if not v.is_initializer() and not is_constant(dequantizer(v))]
    integers = [c for v in varying if (c := _integers_of(v)) is not None]
    if integers:
        if integers[0].dtype in LONG:
            return Precision.FLOAT_BETWEEN_QDQ
        results = [v for node in nodes for v in node.outputs if set(v.consumers()) - set(nodes)]
        if results and all(v.dtype in INTEGERS or _is_quantized(v) for v in results):
            return Precision.INT8
        computes_on_integers = any(c in read for c in integers) or any(map(_is_stored, read))
        # else, as a Softmax of dequantized integers
        return Precision.INT8_FLOAT_OUTPUT if computes_on_integers else Precision.FLOAT
    if any(v.is_initializer() and _is_weight(v) for v in read):
        return Precision.DYNAMIC_INT8
    return Precision.WEIGHT_ONLY if any(map(_is_stored, read)) else Precision.FLOAT


def _is_stored(value: ir.Value) -> bool:
    """Whether it is a weight that is dequantized ahead of its node."""
    source = dequantizer(value)
    return source is not None and is_constant(source) and _is_weight(source.inputs[0])


def _integers_of(value: ir.Value) -> ir.Value | None:
    """The integers that a value is, or stands for; None: it is neither."""
    source = dequantizer(value)
    if source is not None:
        return source.inputs[0]
    producer = value.producer()
    return value if value.dtype in INTEGERS or is_quantize(producer) else None


def _is_weight(value: ir.Value | None) -> bool:
    if value is None or value.const_value is None:
        return False
    tensor = value.const_value
    small = tensor.dtype.bitwidth <= LONG[0].bitwidth and tensor.dtype.is_integer()
    return small and len(tensor.shape) >= LEAST_RANK


def _is_quantized(value: ir.Value) -> bool:
    readers = value.consumers()
    return bool(readers) and all(map(is_quantize, readers))


def precisions_in(choices: Mapping[str, ShownPrecision]) -> dict[str, Precision | None]:
    """The precisions alone."""
    return {name: chosen.precision for name, chosen in choices.items()}


def counted_by_file(
    source: ir.Model, choices: Mapping[str, ShownPrecision], runs: Execution
) -> NodeCounts:
    """Nodes of the float model by what the file shows; one computed with a neighbour is as that."""
    fallen = {each.name for each in runs.fallbacks}
    found: dict[str, Precision] = {}
    for node, _ in walk(source.graph):
        name, read = node_name(node), [v.producer() for v in node.inputs if v is not None]
        ahead = [found[node_name(n)] for n in read if n is not None and node_name(n) in found]
        found[name] = choices[name].precision or next(iter(ahead), Precision.FLOAT)
        if name in fallen:
            found[name] = Precision.FLOAT_BETWEEN_QDQ
    counts = Counter(found.values())
    integers = sum(counts[each] for each in IN_INTEGER_KERNELS)
    rest = len(found) - integers - counts[Precision.FLOAT]
    return NodeCounts(integers, rest, counts[Precision.FLOAT])
