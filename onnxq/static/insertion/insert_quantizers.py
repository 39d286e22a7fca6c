"""Where the quantizers sit: a decision for every node, and the tensors that get qparams.

Four sweeps over the graph, each linear:
    candidates  each node alone: has it a rule, does the qconfig ask for it, are its types right
    demand      backwards: does an integer node read this tensor, through whatever only moves data
    decide      forwards: element-wise nodes follow their inputs, data movement follows either side
    enclosed    element-wise nodes that were left in float between Q/DQ nodes that others ask for

A tensor that is quantized has one set of qparams, whoever reads it. Tensors that a node merely
copies form a group with one set for all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxq.core.reason import Reason
from onnxq.dtypes import INT8
from onnxq.graph.walk import node_name, value_name
from onnxq.operator import Float, OpCategory, Precision
from onnxq.operator.reasons import NotTried
from onnxq.qconfig import QConfig, QConfigMapping
from onnxq.qdq.read import dequantizer, one_scale
from onnxq.static import reasons
from onnxq.static.insertion.candidates import UNBOUNDED, Candidate, find_candidates
from onnxq.static.insertion.context import Context
from onnxq.static.insertion.decision import Decision, Quantize, weight_limit, weight_observer
from onnxq.static.insertion.unbounded import by_infinity
from onnxq.targets import Target

BITS_OF_RANGES = 8  # Rule.output_range is made for integers of 8 bits; wider ones are observed


@dataclass(slots=True)
class QuantizerInsertion:
    """Quantizer insertion that the sweeps fill; `prepare` makes a frozen Prepared of it.

    Attributes:
        decisions: node name -> decision, in graph order, subgraphs included.
        quantized: names of activation tensors that get qparams, constants included, in graph order.
        from_integers: those of them that an integer node (or the Q on a graph input) produces.
        constants: those of them that are initializers.
        clamps: tensor -> real bounds of the Relu and Clip nodes folded into its Q.
        shares: tensor -> tensor; union-find parents of tensors with the same qparams.
        shared_outputs: tensors that are mere copies of other tensors of their group.
        ranges: tensor -> real interval known without data.
        owners: tensor -> (node name, op type) whose qconfig names its observer.
    """

    decisions: dict[str, Decision] = field(default_factory=dict)
    quantized: dict[str, None] = field(default_factory=dict)
    from_integers: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    clamps: dict[str, tuple[float, float]] = field(default_factory=dict)
    shares: dict[str, str] = field(default_factory=dict)
    shared_outputs: set[str] = field(default_factory=set)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)

    def root(self, tensor: str) -> str:
        """The tensor that stands for this one's group."""
        path = []
        while (parent := self.shares.get(tensor, tensor)) != tensor:
            path.append(tensor)
            tensor = parent
        self.shares.update(dict.fromkeys(path, tensor))
        return tensor

    def join(self, first: str, second: str) -> None:
        """Puts two tensors in one group."""
        self.shares[self.root(second)] = self.root(first)


def insert_quantizers(context: Context, qconfig: QConfigMapping) -> QuantizerInsertion:
    """Runs the four sweeps over a canonical model, with this qconfig in place of the asked one."""
    model, order, target = context.model, context.order, context.target
    candidates, floats = find_candidates(context, qconfig)
    for decide in BESIDE:
        for node, reason in decide(context, candidates).items():
            floats |= {n: Float(reason) for n in _whole(candidates.pop(node))}
    insertion = QuantizerInsertion()
    for node, _ in order:  # graph order; those of candidates are overwritten below
        insertion.decisions[node_name(node)] = floats.get(node, Float(NotTried()))
    outputs = {v for v in model.graph.outputs if v.name in context.quantized_output}
    demand = _demand(order, candidates, outputs)
    in_integers = [
        v for node, _ in order for v in node.outputs if _range_of_integers(v) is not None
    ]
    for value in (*model.graph.inputs, *in_integers):
        if value in demand.by_compute:
            _quantize_tensor(value, insertion)
            insertion.from_integers.add(value_name(value))
    in_order = [candidates[node] for node, _ in order if node in candidates]
    for candidate in in_order:
        _decide(candidate, demand, qconfig, target, insertion)
    for candidate in in_order:
        if _is_enclosed(candidate, insertion):
            _take(candidate, demand, qconfig, target, insertion)
    return insertion


@dataclass(slots=True)
class _Demand:
    """Values that integer nodes read, directly or behind nodes that only move data."""

    by_compute: set[ir.Value] = field(default_factory=set)
    by_any: set[ir.Value] = field(default_factory=set)


def _demand(
    order: list[tuple[ir.Node, str | None]],
    candidates: Mapping[ir.Node, Candidate],
    outputs: set[ir.Value],
) -> _Demand:
    demand = _Demand(set(outputs), set(outputs))
    for node, _ in reversed(order):
        candidate = candidates.get(node)
        if candidate is None:
            continue
        read = {v for s in candidate.rule.activations if (v := node.inputs[s]) is not None}
        match candidate.rule.category:
            case OpCategory.COMPUTE:
                demand.by_compute |= read
                demand.by_any |= read
            case OpCategory.ELEMENTWISE:
                if not _is_idle(candidate, demand):
                    demand.by_any |= read
            case OpCategory.MOVEMENT | OpCategory.CLAMP:
                if any(v in demand.by_compute for v in candidate.results):
                    demand.by_compute |= read
                if any(v in demand.by_any for v in candidate.results):
                    demand.by_any |= read
    return demand


def _is_idle(candidate: Candidate, demand: _Demand) -> bool:
    """Whether a cheap node that is written on integers (Sub, Tanh) has float readers only.

    Between integers and float it saves little, and costs accuracy: one more rounding of a
    difference x - mean(x) in a LayerNorm of single nodes, or of the scores ahead of a float
    Softmax.
    """
    rule = candidate.rule
    written = rule.category is OpCategory.ELEMENTWISE and rule.lowered
    return written and not any(v in demand.by_any for v in candidate.results)


def _decide(
    candidate: Candidate,
    demand: _Demand,
    qconfig: QConfigMapping,
    target: Target,
    insertion: QuantizerInsertion,
) -> None:
    node = candidate.node
    asked = qconfig.explicit_for_node(node_name(node), node.op_type)
    reason = None if asked else by_conversions(candidate, demand, insertion)
    if reason:
        for node in _whole(candidate):
            insertion.decisions[node_name(node)] = Float(reason)
        return
    _take(candidate, demand, qconfig, target, insertion)


def _is_enclosed(candidate: Candidate, insertion: QuantizerInsertion) -> bool:
    """Whether an element-wise node was left in float though integers stand on all its sides anyway.

    Later readers of its inputs may have asked for integers, as the Mul behind a squeeze and
    excitation does of what is squeezed. In integers the node then saves conversions, and the
    transposes that a float pooling between channels-last convolutions needs.
    """
    if candidate.rule.category is not OpCategory.ELEMENTWISE:
        return False
    if not isinstance(insertion.decisions[node_name(candidate.node)], Float):
        return False
    around = [*(v for v in _read(candidate) if not v.is_initializer()), *candidate.results]
    return all(value_name(v) in insertion.quantized for v in around)


def _take(
    candidate: Candidate,
    demand: _Demand,
    qconfig: QConfigMapping,
    target: Target,
    insertion: QuantizerInsertion,
) -> None:
    """Decides for integers: the tensors around the node get qparams."""
    node, rule = candidate.node, candidate.rule
    chosen = qconfig.for_node(node_name(node), node.op_type)
    assert chosen is not None, "a node without a qconfig is no candidate"
    read = _read(candidate)
    has_output = _has_output(candidate, demand, chosen)
    owner = (node_name(node), node.op_type)
    narrow = chosen.activation_observer().dtype.bits <= BITS_OF_RANGES
    for value in read:
        _quantize_tensor(value, insertion)
        insertion.owners.setdefault(value_name(value), owner)
        if narrow and (given := _range_of_integers(value)) is not None:
            insertion.ranges[value_name(value)] = given
    results = candidate.results if has_output else []
    for value in results:
        _quantize_tensor(value, insertion)
        insertion.from_integers.add(value_name(value))
        insertion.owners[value_name(value)] = owner
        if rule.output_range is not None and not candidate.folded and narrow:
            insertion.ranges[value_name(value)] = rule.output_range
        if candidate.clamp != UNBOUNDED:
            insertion.clamps[value_name(value)] = candidate.clamp
    if rule.shares_qparams or (
        rule.category is OpCategory.CLAMP and not _has_own_qparams(candidate)
    ):
        _share(candidate, read, insertion)
    names = tuple(value_name(v) for v in results)
    insertion.decisions[node_name(node)] = Quantize(
        rule, _how(candidate, has_output, qconfig, target), None, names
    )
    for folded, folded_rule in candidate.folded:
        part = reasons.PartOf(node.op_type, node_name(node))
        insertion.decisions[node_name(folded)] = Quantize(folded_rule, part, node_name(node))


def _has_own_qparams(candidate: Candidate) -> bool:
    """Whether its bounds need not be integers of its input's scale, which others read as well.

    Read by the Clip alone, the input has the range of what the Clip gives (see survivors), and 0 is
    an integer of every range; else planning decides with the data (see planning.clipped).
    """
    assert candidate.rule.clamp is not None
    others = len(_read(candidate)[0].uses()) > 1 or _read(candidate)[0].is_graph_output()
    return others and any(math.isfinite(bound) and bound != 0 for bound in candidate.rule.clamp)


def _has_output(candidate: Candidate, demand: _Demand, chosen: QConfig) -> bool:
    """Whether a Q stands behind the node: its kernel needs it, or someone asks for integers."""
    if candidate.rule.category is not OpCategory.COMPUTE or candidate.needs_output:
        return True
    if chosen.precision is not None:
        return chosen.precision is Precision.INT8
    return any(v in demand.by_any for v in candidate.results)


def _range_of_integers(value: ir.Value) -> tuple[float, float] | None:
    """Reals of the first and the last integer that a float model makes the value of; else None.

    Quantized with this range, the value has its integers again.
    """
    source = one_scale(dequantizer(value))
    if source is None or source.dtype.bits != BITS_OF_RANGES or value.is_initializer():
        return None
    low, high = (
        (end - int(source.zero_point)) * float(source.scale)
        for end in (source.dtype.qmin, source.dtype.qmax)
    )
    return low, high


def _read(candidate: Candidate) -> list[ir.Value]:
    """Activations that it reads in integers."""
    node = candidate.node
    return [v for slot in candidate.rule.activations if (v := node.inputs[slot]) is not None]


def by_conversions(
    candidate: Candidate, demand: _Demand, insertion: QuantizerInsertion
) -> Reason | None:
    """Leaves a node in float where integers cost more conversions than they save."""
    varying = [v for v in _read(candidate) if not v.is_initializer()]
    arrive = [value_name(v) in insertion.from_integers for v in varying]
    # around the node in integers, whose readers are float, and in float
    needed, saved = arrive.count(False) + len(candidate.results), sum(arrive)
    if candidate.rule.category is OpCategory.ELEMENTWISE and not any(arrive):
        return reasons.InputsInFloat(needed, saved)
    if _is_idle(candidate, demand):
        return reasons.ReadInFloat(needed, saved)
    if candidate.rule.category in (OpCategory.MOVEMENT, OpCategory.CLAMP):
        early = candidate.rule.category is OpCategory.CLAMP or candidate.rule.shrinks
        if early and not any(value_name(v) in insertion.quantized for v in varying):
            return reasons.BetterBehind()
        if any(v in demand.by_compute for v in candidate.results):
            return None
        if not (arrive and all(arrive)):
            return reasons.MovesDataOnly(needed, saved)
        if candidate.results and not any(v in demand.by_any for v in candidate.results):
            return reasons.MovesUnreadData(needed, saved)
    return None


def by_clip_bounds(_: Context, candidates: Mapping[ir.Node, Candidate]) -> dict[ir.Node, Reason]:
    """Leaves a Clip in float where integers of its input cannot hold its bounds.

    Folded into the node before it, a Clip bounds what is observed; on its own, it reads integers
    whose range holds the data and 0, but need not reach its bounds.
    """
    clamps = {node: candidate.rule.clamp for node, candidate in candidates.items()}
    return {
        node: reasons.BoundsOutsideRange(*clamp)
        for node, clamp in clamps.items()
        if clamp is not None and not clamp[0] <= 0 <= clamp[1]
    }


BESIDE = (by_infinity, by_clip_bounds)
"""Deciders that look at a candidate beside others: node -> why it stays in float."""


def _how(candidate: Candidate, has_output: bool, qconfig: QConfigMapping, target: Target) -> Reason:
    """The integer form of a node."""
    rule = candidate.rule
    if rule.category is OpCategory.CLAMP:
        return reasons.ClampOnIntegers()
    if rule.precision is Precision.FLOAT_BETWEEN_QDQ:
        return reasons.FloatBetweenIntegers()
    if rule.shares_qparams:
        return reasons.MovesIntegers()
    if rule.weight is None:
        return reasons.IntegerKernel("", None, has_output)
    dtype = weight_observer(candidate.node, rule, qconfig)().dtype
    within = weight_limit(rule, target) if dtype == INT8 else None
    return reasons.IntegerKernel(str(dtype), within, has_output)


def _whole(candidate: Candidate) -> list[ir.Node]:
    """The node and those folded into it."""
    return [candidate.node, *(folded for folded, _ in candidate.folded)]


def _quantize_tensor(value: ir.Value, insertion: QuantizerInsertion) -> None:
    insertion.quantized[value_name(value)] = None
    if value.is_initializer():
        insertion.constants.add(value_name(value))


def _share(candidate: Candidate, read: list[ir.Value], insertion: QuantizerInsertion) -> None:
    """Joins the tensors that a node copies.

    Where several inputs meet (Concat, Where), an input that others read too keeps its own qparams:
    the integer kernel requantizes it, and its other readers do not pay for the common range.
    """
    results = [value_name(v) for v in candidate.results]
    may_requantize = candidate.rule.is_fused and len(read) > 1
    joined = [v for v in read if not (may_requantize and len(v.uses()) > 1)]
    for value in joined:
        for result in results:
            insertion.join(value_name(value), result)
    if len(joined) == len(read):
        insertion.shared_outputs.update(results)
    elif len(results) > 1:
        for result in results[1:]:
            insertion.join(results[0], result)
