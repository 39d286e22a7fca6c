"""Where the quantizers sit: a decision for every node, and the tensors that get qparams.

Three sweeps over the graph, each linear:
    candidates  each node alone: has it a rule, does the qconfig ask for it, are its types right
    demand      backwards: does an integer node read this tensor, through whatever only moves data
    decide      forwards: element-wise nodes follow their inputs, data movement follows either side

A tensor that is quantized has one set of qparams, whoever reads it. Tensors that a node merely copies
form a group with one set for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxq import catalog
from onnxq.operator import Float, Form, Role, Rule
from onnxq.qconfig import QConfigMapping
from onnxq.targets import Target

MAX_RANK_OF_BIAS = 1  # MatMul + Add counts as a biased MatMul for a vector bias only


@dataclass(frozen=True, slots=True)
class Quantize:
    """A node runs in integers.

    Attributes:
        rule: what its operator says of it.
        how: in words, for people.
        folded_into: the node whose integer kernel carries this one out (a Relu after a Conv); else None.
        results: tensors behind this node, and behind what is folded into it, that get a QuantizeLinear.
    """

    rule: Rule
    how: str
    folded_into: str | None = None
    results: tuple[str, ...] = ()


Decision = Quantize | Float


@dataclass(slots=True)
class Placement:
    """What the sweeps find; `prepare` makes a frozen Prepared of it.

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


@dataclass(slots=True)
class _Candidate:
    """A node that could run in integers, with the nodes folded into it."""

    node: ir.Node
    rule: Rule
    results: list[ir.Value]  # rule.outputs, each behind the nodes folded into it
    folded: list[tuple[ir.Node, Rule]]
    needs_output: bool


def value_name(value: ir.Value) -> str:
    """The value's name; canonical graphs name every value."""
    assert value.name
    return value.name


def node_name(node: ir.Node) -> str:
    """The node's name; canonical graphs name every node."""
    assert node.name
    return node.name


def walk(graph: ir.Graph, loop: str | None = None) -> Iterator[tuple[ir.Node, str | None]]:
    """Nodes in the order in which they run, those of subgraphs before the node that holds them.

    Yields:
        (node, name of the innermost Loop or Scan around it or None).
    """
    for node in graph:
        inner = loop if node.op_type == "If" else f"{node.op_type} '{node.name}'"
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from walk(attribute.as_graph(), inner)
            elif attribute.type == ir.AttributeType.GRAPHS:
                for subgraph in attribute.as_graphs():
                    yield from walk(subgraph, inner)
        yield node, loop


def place(model: ir.Model, qconfig: QConfigMapping, target: Target) -> Placement:
    """Runs the three sweeps over a canonical model."""
    placement = Placement()
    order = list(walk(model.graph))
    candidates: dict[ir.Node, _Candidate] = {}
    for node, loop in order:
        verdict = _judge(node, loop, qconfig, target)
        placement.decisions[node_name(node)] = (
            verdict if isinstance(verdict, Float) else Float("not decided")
        )
        if isinstance(verdict, Rule):
            outputs = [node.outputs[slot] for slot in verdict.outputs]
            candidates[node] = _Candidate(node, verdict, outputs, [], verdict.needs_output)
    _fold(candidates, placement)
    demand = _demand(order, candidates)
    explicit = {n for n in candidates if qconfig.explicit_for_node(node_name(n), n.op_type)}
    for value in model.graph.inputs:
        if value in demand.by_compute:
            _quantize_tensor(value, placement)
            placement.from_integers.add(value_name(value))
    for node, _ in order:
        if node in candidates:
            _decide(candidates[node], demand, node in explicit, placement)
    return placement


def _judge(node: ir.Node, loop: str | None, qconfig: QConfigMapping, target: Target) -> Rule | Float:
    """The rule of a node that can and should run in integers as far as the node alone tells."""
    label = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if loop is not None:
        return Float(f"inside the body of {loop}: static quantization leaves loop bodies in float")
    operator = catalog.find(node.op_type, node.domain)
    if operator is None:
        return Float(f"onnxq has no integer form of {label}")
    if qconfig.for_node(node_name(node), node.op_type) is None:
        return Float("the qconfig leaves it in float")
    rule = operator.rule(node)
    if isinstance(rule, Float):
        return rule
    if reason := _why_slots_forbid(node, rule, qconfig):
        return Float(reason)
    ratio = target.slow_in_integers.get(node.op_type)
    if ratio is not None and not qconfig.explicit_for_node(node_name(node), node.op_type):
        return Float(
            f"ONNX Runtime runs {label} in integers at {ratio:.2f} of its float speed; "
            "name it in the qconfig to have it in integers all the same"
        )
    return rule


def _why_slots_forbid(node: ir.Node, rule: Rule, qconfig: QConfigMapping) -> str:
    """Why a tensor of this node cannot be quantized, or the empty string."""
    tensors = [node.inputs[slot] for slot in rule.activations if slot < len(node.inputs)]
    tensors += [node.outputs[slot] for slot in rule.outputs if slot < len(node.outputs)]
    for value in tensors:
        if value is None:
            return "an input that it needs is absent"
        if value.dtype is None:
            return f"the type of tensor '{value.name}' is not known"
        if value.dtype != ir.DataType.FLOAT:
            return f"tensor '{value.name}' is {value.dtype.name.lower()}, not float32"
        if qconfig.for_tensor(value_name(value)) is None:
            return f"the qconfig leaves tensor '{value.name}' in float"
    if rule.weight is not None and _constant(node, rule.weight.slot) is None:
        return f"its weight '{_input_name(node, rule.weight.slot)}' is computed at run time"
    if rule.bias is not None and len(node.inputs) > rule.bias and node.inputs[rule.bias] is not None:
        if _constant(node, rule.bias) is None:
            return f"its bias '{_input_name(node, rule.bias)}' is computed at run time"
    return ""


def _input_name(node: ir.Node, slot: int) -> str | None:
    value = node.inputs[slot]
    return None if value is None else value.name


def _constant(node: ir.Node, slot: int) -> ir.TensorProtocol | None:
    """The constant in an input slot, or None."""
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return None if value is None or not value.is_initializer() else value.const_value


def _only_reader(value: ir.Value) -> ir.Node | None:
    """The one node that reads the value, in the value's own graph; None if there are others."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    (use,) = uses
    producer = value.producer()
    return use.node if producer is not None and use.node.graph is producer.graph else None


def _fold(candidates: dict[ir.Node, _Candidate], placement: Placement) -> None:
    """Folds a vector bias behind a MatMul, then Relu and Clip, into the node that feeds them."""
    for candidate in list(candidates.values()):
        if candidate.node not in candidates or len(candidate.results) != 1:
            continue
        rule = candidate.rule
        if rule.role not in (Role.COMPUTE, Role.ELEMENTWISE) or rule.shares_qparams:
            continue
        if rule.role is Role.COMPUTE and rule.bias is None:
            _fold_bias(candidate, candidates)
        _fold_clamps(candidate, candidates, placement)


def _fold_bias(candidate: _Candidate, candidates: dict[ir.Node, _Candidate]) -> None:
    """MatMul -> Add(vector): one Q behind the Add, which ONNX Runtime fuses with the MatMul."""
    reader = _only_reader(candidate.results[0])
    if reader is None or reader.op_type != "Add" or reader not in candidates:
        return
    others = [v for v in reader.inputs if v is not candidate.results[0]]
    if len(others) != 1 or others[0] is None or not others[0].is_initializer():
        return
    if others[0].shape is None or len(others[0].shape) > MAX_RANK_OF_BIAS:
        return
    candidate.folded.append((reader, candidates.pop(reader).rule))
    candidate.results = [reader.outputs[0]]
    candidate.needs_output = True  # without a Q, ONNX Runtime runs a float Gemm (static shapes)


def _fold_clamps(
    candidate: _Candidate, candidates: dict[ir.Node, _Candidate], placement: Placement
) -> None:
    low, high = float("-inf"), float("inf")
    while (reader := _only_reader(candidate.results[0])) is not None:
        following = candidates.get(reader)
        if following is None or following.rule.clamp is None:
            break
        bounds = following.rule.clamp
        low, high = min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])
        candidate.folded.append((reader, candidates.pop(reader).rule))
        candidate.results = [reader.outputs[0]]
        candidate.needs_output = True
    if candidate.folded and (low, high) != (float("-inf"), float("inf")):
        placement.clamps[value_name(candidate.results[0])] = (low, high)


@dataclass(slots=True)
class _Demand:
    """Values that integer nodes read, directly or behind nodes that only move data."""

    by_compute: set[ir.Value] = field(default_factory=set)
    by_any: set[ir.Value] = field(default_factory=set)


def _demand(
    order: list[tuple[ir.Node, str | None]], candidates: Mapping[ir.Node, _Candidate]
) -> _Demand:
    demand = _Demand()
    for node, _ in reversed(order):
        candidate = candidates.get(node)
        if candidate is None:
            continue
        read = {v for s in candidate.rule.activations if (v := node.inputs[s]) is not None}
        match candidate.rule.role:
            case Role.COMPUTE:
                demand.by_compute |= read
                demand.by_any |= read
            case Role.ELEMENTWISE:
                demand.by_any |= read
            case Role.MOVEMENT | Role.CLAMP:
                if any(v in demand.by_compute for v in candidate.results):
                    demand.by_compute |= read
                if any(v in demand.by_any for v in candidate.results):
                    demand.by_any |= read
    return demand


def _decide(candidate: _Candidate, demand: _Demand, explicit: bool, placement: Placement) -> None:
    node, rule = candidate.node, candidate.rule
    read = [v for slot in rule.activations if (v := node.inputs[slot]) is not None]
    varying = [v for v in read if not v.is_initializer()]
    arrive = [value_name(v) in placement.from_integers for v in varying]
    if rule.role is Role.ELEMENTWISE and not (explicit or any(arrive)):
        reason = "its inputs are float: integers here would cost more conversions than they save"
        _leave_float(candidate, reason, placement)
        return
    if rule.role in (Role.MOVEMENT, Role.CLAMP):
        wanted = any(v in demand.by_compute for v in candidate.results)
        if not (explicit or wanted or (arrive and all(arrive))):
            reason = "it only moves data, and neither side of it is in integers"
            _leave_float(candidate, reason, placement)
            return
    has_output = (
        rule.role is not Role.COMPUTE
        or candidate.needs_output
        or any(v in demand.by_any for v in candidate.results)
    )
    owner = (node_name(node), node.op_type)
    for value in read:
        _quantize_tensor(value, placement)
        placement.owners.setdefault(value_name(value), owner)
    results: tuple[str, ...] = ()
    if has_output:
        results = tuple(value_name(v) for v in candidate.results)
        for value in candidate.results:
            _quantize_tensor(value, placement)
            placement.from_integers.add(value_name(value))
            placement.owners[value_name(value)] = owner
            if rule.output_range is not None and not candidate.folded:
                placement.ranges[value_name(value)] = rule.output_range
    if rule.shares_qparams or rule.role is Role.CLAMP:
        _share(candidate, read, placement)
    how = "in integers" if has_output else "in integers, float32 result"
    placement.decisions[node_name(node)] = Quantize(rule, how, None, results)
    for folded, folded_rule in candidate.folded:
        how = f"part of {node.op_type} '{node.name}'"
        placement.decisions[node_name(folded)] = Quantize(folded_rule, how, node_name(node))


def _leave_float(candidate: _Candidate, reason: str, placement: Placement) -> None:
    placement.decisions[node_name(candidate.node)] = Float(reason)
    for folded, _ in candidate.folded:
        placement.decisions[node_name(folded)] = Float(reason)
    placement.clamps.pop(value_name(candidate.results[0]), None)


def _quantize_tensor(value: ir.Value, placement: Placement) -> None:
    placement.quantized[value_name(value)] = None
    if value.is_initializer():
        placement.constants.add(value_name(value))


def _share(candidate: _Candidate, read: list[ir.Value], placement: Placement) -> None:
    """Joins the tensors that a node copies.

    Where several inputs meet (Concat, Where), an input that others read too keeps its own qparams: the
    integer kernel requantizes it, and its other readers do not pay for the common range.
    """
    results = [value_name(v) for v in candidate.results]
    may_requantize = candidate.rule.form is Form.QDQ and len(read) > 1
    joined = [v for v in read if not (may_requantize and len(v.uses()) > 1)]
    for value in joined:
        for result in results:
            placement.join(value_name(value), result)
    if len(joined) == len(read):
        placement.shared_outputs.update(results)
    elif len(results) > 1:
        for result in results[1:]:
            placement.join(results[0], result)
