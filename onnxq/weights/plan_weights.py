"""The plan of weights in groups: a decision for every node that reads a constant matrix.

Each node alone, bodies of If, Loop and Scan included. A weight that is, transposed or not, the
embedding too, stays in float with it unless embeddings are asked for: its integers would stand
in the file beside the float embedding. Integers of an embedding come before any sample has gone
through the model, so that they are found without; a layer that shares them has the embedding's
precision.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np
import onnx_ir as ir

from onnxq import catalog
from onnxq.core.arrays import Singles
from onnxq.core.reason import Reason
from onnxq.dynamic.reasons import NoDynamicOperator, NoWeights, StoredInFewerBits
from onnxq.dynamic.requests import without_form
from onnxq.errors import ModelError, QConfigError, listed, nearest
from onnxq.graph.prequantized_weights import (
    KEPT_DB,
    is_prequantized,
    sqnr_of,
    stored_bits,
    words_on_integers,
)
from onnxq.graph.walk import node_name, value_name, walk
from onnxq.operator import DynamicRule, Float, Precision
from onnxq.operator.nodes import input_at, is_constant, sizes, tensor_of
from onnxq.qparams.group_spec import Method
from onnxq.targets.speedups import LINEAR_OPS
from onnxq.weights.embeddings import (
    Tie,
    find_ties,
    is_lookup,
    is_stack,
    notes_on_no_embeddings,
    why_no_rows,
)
from onnxq.weights.experts import FC1, FC2, is_mixture, part_name, why_no_qmoe
from onnxq.weights.hessian import parts_of_inputs
from onnxq.weights.prequantized_groups import prequantized_spec
from onnxq.weights.reasons import (
    ConstantMatMul,
    EmbeddingsNotAsked,
    Excluded,
    GroupsAlongRows,
    GroupsDoNotDivide,
    NoGroupwiseMatrix,
    NoGroupwiseOperator,
    NoGroupwiseWeights,
    WeightIsEmbedding,
)
from onnxq.weights.solve import Nearest
from onnxq.weights.weight_plan import Groupwise, WeightDecision, WeightPlan, WeightRequest

MATRIX = 2
FINITE_ELEMENTS = 1 << 22
"""Weights that are looked at together for NaN and Inf."""


def plan_weights(model: ir.Model, request: WeightRequest) -> WeightPlan:
    """A decision for every node of a canonical model, which is not changed."""
    nodes = [node for node, _ in walk(model.graph)]
    excluded = _excluded(request.exclude, [node_name(node) for node in nodes])
    ties = find_ties(nodes)
    decisions: dict[str, WeightDecision] = {}
    for node in nodes:
        if is_mixture(node) and node_name(node) not in excluded:
            decisions |= _experts(node, request, model.graph)
        else:
            decisions[node_name(node)] = _decision(node, request, ties, excluded)
    decisions |= _shared(decisions, _float_embeddings(nodes, decisions))
    hidden = _hidden(nodes, decisions, model.graph) if request.method.needs_samples else {}
    decisions |= hidden
    plan = WeightPlan(decisions)
    if not plan.quantized:
        raise ModelError(_nothing(decisions))
    embeddings = [d.embedding for d in plan.quantized.values() if d.embedding]
    notes = (
        *_notes_on_hidden(hidden, request),
        *_notes_on_short_blocks(plan),
        *_notes_on_wide(plan),
        *_notes_on_given(plan, nodes),
        *([] if request.embeddings is None else notes_on_no_embeddings(embeddings)),
    )
    return dataclasses.replace(plan, notes=notes)


def rows_of(value: ir.Value, decision: Groupwise, start: int, stop: int) -> Singles:
    """float32 (stop - start, inputs): rows of a weight, read from its initializer."""
    array = tensor_of(value).numpy()
    array = array.reshape(-1, array.shape[-1])
    part = array[:, start:stop].T if decision.inputs_first else array[start:stop]
    return np.ascontiguousarray(part, np.float32)


def _excluded(patterns: Collection[str], names: Sequence[str]) -> set[str]:
    """Names of the nodes that names or globs mean; raises QConfigError where they mean none."""
    found: set[str] = set()
    for pattern in patterns:
        some = {pattern} & set(names) or {name for name in names if fnmatchcase(name, pattern)}
        if not some:
            raise QConfigError(
                f"exclude: the model has no node '{pattern}'.{nearest(pattern, names)}"
            )
        found |= some
    return found


def _decision(
    node: ir.Node, request: WeightRequest, ties: Mapping[str, Tie], excluded: Collection[str]
) -> WeightDecision:
    if is_lookup(node) or is_stack(node):
        return _lookup(node, request, excluded)
    operator = catalog.find(node.op_type, node.domain)
    if is_mixture(node):
        return Float(Excluded())
    if node.op_type not in LINEAR_OPS or operator is None or not operator.has_dynamic_rule():
        return _not_linear(node)
    rule = operator.dynamic_rule(node)
    if isinstance(rule, Float):
        return rule
    if node_name(node) in excluded:
        return Float(Excluded())
    if reason := _why_no_blocks(node, rule):
        return Float(reason)
    (weight,) = rule.weights
    value = input_at(node, weight.slot)
    name = value_name(value)
    if name in ties and request.embeddings is None:
        return Float(WeightIsEmbedding(name, ties[name].lookup))
    _check_finite(name, tensor_of(value).numpy())
    made = _in_blocks(rule, value, request)
    if name not in ties or request.embeddings is None:
        return _taken_over(made, value)
    if made.inputs_first != ties[name].turned:
        return Float(GroupsAlongRows(ties[name].embedding))
    return dataclasses.replace(
        made, spec=request.embeddings, method=Method.HQQ, embedding=ties[name].embedding, tied=True
    )


def _experts(node: ir.Node, request: WeightRequest, main: ir.Graph) -> dict[str, WeightDecision]:
    """Decisions on the linear layers of each expert of a mixture, or that it stays in float."""
    spec, mixture = request.spec.with_whole_points, node_name(node)
    if reason := why_no_qmoe(node, spec, main):
        return {mixture: Float(reason)}
    found: dict[str, WeightDecision] = {}
    for slot in (FC1, FC2):
        name, (experts, outputs, inputs) = value_name(input_at(node, slot)), sizes(node, slot)
        _check_finite(name, tensor_of(input_at(node, slot)).numpy())
        for expert in range(experts):
            part, tensor = part_name(mixture, expert, slot), f"{name}.{expert}"
            found[part] = Groupwise(
                spec, request.method, 1, tensor, False, outputs, inputs, part_of=mixture
            )
    return found


def _taken_over(made: Groupwise, value: ir.Value) -> WeightDecision:
    """The layer with the integers that the file has, where it stores some in as few bits."""
    if stored_bits(value) > made.spec.bits:
        return made
    spec = prequantized_spec(value, made.inputs_first, made.spec)
    if spec is None:
        return Float(StoredInFewerBits(made.tensor, stored_bits(value)))
    return dataclasses.replace(made, spec=spec, method=Method.RTN, given=True)


def _why_no_blocks(node: ir.Node, rule: DynamicRule) -> Reason | None:
    """Why the weight cannot be stored in groups, or None."""
    if Precision.WEIGHT_ONLY_GROUPWISE not in rule.precisions:
        return NoGroupwiseMatrix()
    if is_constant(node, 1 - rule.weights[0].slot):
        return ConstantMatMul()
    return None


def _lookup(node: ir.Node, request: WeightRequest, excluded: Collection[str]) -> WeightDecision:
    if is_stack(node):
        return _stack(node, request, excluded)
    if request.embeddings is None:
        return Float(EmbeddingsNotAsked())
    if node_name(node) in excluded:
        return Float(Excluded())
    if reason := why_no_rows(node, request.embeddings.group_size):
        return Float(reason)
    value = input_at(node, 0)
    name, (rows, width) = value_name(value), tensor_of(value).shape.numpy()
    _check_finite(name, tensor_of(value).numpy())
    return Groupwise(request.embeddings, Method.HQQ, 0, name, False, rows, width, embedding=name)


def _stack(node: ir.Node, request: WeightRequest, excluded: Collection[str]) -> WeightDecision:
    """Decision on a lookup of whole matrices, which a MatMul behind it reads."""
    spec, (count, outputs, inputs) = request.spec.with_whole_points, sizes(node, 0)
    if node_name(node) in excluded:
        return Float(Excluded())
    if inputs % spec.group_size:
        return Float(GroupsDoNotDivide(spec.group_size, inputs))
    value = input_at(node, 0)
    name = value_name(value)
    _check_finite(name, tensor_of(value).numpy())
    return Groupwise(spec, Method.HQQ, 0, name, False, count * outputs, inputs, embedding=name)


def _float_embeddings(
    nodes: Sequence[ir.Node], decisions: Mapping[str, WeightDecision]
) -> dict[str, str]:
    """Embedding -> a lookup that leaves it in float."""
    return {
        value_name(input_at(node, 0)): node_name(node)
        for node in nodes
        if is_lookup(node) and isinstance(decisions[node_name(node)], Float)
    }


def _shared(
    decisions: Mapping[str, WeightDecision], kept: Mapping[str, str]
) -> dict[str, WeightDecision]:
    """Decisions that change as others read the same embedding: quantized for all, or for none."""
    found: dict[str, WeightDecision] = {}
    embeddings = {n: d for n, d in decisions.items() if isinstance(d, Groupwise) and d.embedding}
    tied = {d.embedding for d in embeddings.values() if d.tied}
    for name, decision in embeddings.items():
        if decision.embedding in kept:
            found[name] = Float(WeightIsEmbedding(decision.tensor, kept[decision.embedding]))
        elif decision.embedding in tied:
            found[name] = dataclasses.replace(decision, tied=True)
    return found


def _check_finite(name: str, array: Singles) -> None:
    """Refuses NaN and Inf, row by row: a head may be a gigabyte, mapped from disk."""
    step = max(1, FINITE_ELEMENTS // max(1, math.prod(array.shape[1:])))
    for start in range(0, len(array), step):
        if not np.isfinite(array[start : start + step]).all():
            raise ModelError(f"weight '{name}' holds NaN or Inf; repair the model.")


def _in_blocks(rule: DynamicRule, value: ir.Value, request: WeightRequest) -> Groupwise:
    (weight,) = rule.weights
    sizes = tensor_of(value).shape.numpy()
    axis = weight.axis
    assert axis is not None, "a rule with blocks has an axis of outputs"
    outputs, inputs = sizes[axis], sizes[1 - axis % MATRIX]
    return Groupwise(
        request.spec,
        request.method,
        weight.slot,
        value_name(value),
        axis % MATRIX == 1,
        outputs,
        inputs,
    )


def _not_linear(node: ir.Node) -> Float:
    why = without_form(node)
    if isinstance(why, NoDynamicOperator):
        return Float(NoGroupwiseOperator(why.label, why.constant))
    return Float(NoGroupwiseWeights() if isinstance(why, NoWeights) else why)


def _hidden(
    nodes: Sequence[ir.Node], decisions: Mapping[str, WeightDecision], main: ir.Graph
) -> dict[str, WeightDecision]:
    """Linear layers in bodies, whose inputs nobody sees, with a method that needs to see none."""
    found: dict[str, WeightDecision] = {}
    for name, decision in (
        (node_name(n), decisions[node_name(n)]) for n in nodes if n.graph is not main
    ):
        if isinstance(decision, Groupwise):
            found[name] = dataclasses.replace(decision, method=Method.HQQ)
    return found


def _notes_on_hidden(hidden: Collection[str], request: WeightRequest) -> list[str]:
    if not hidden:
        return []
    return [
        f"{listed(list(hidden))}: in the body of a Loop, Scan or If, whose inputs are not seen; "
        f"integers are found by hqq in place of {request.method.value}"
    ]


def _notes_on_given(plan: WeightPlan, nodes: Sequence[ir.Node]) -> list[str]:
    """Notes on weights that the file stores as integers, and on what fewer bits cost."""
    named = {node_name(node): node for node in nodes}
    left_db = {}
    for name, decision in plan.quantized.items():
        if decision.part_of:
            continue
        value = input_at(named[name], decision.slot)
        if decision.given:
            left_db[decision.tensor] = KEPT_DB
        elif is_prequantized(value):
            array = tensor_of(value).numpy()
            rows = np.ascontiguousarray(array.T if decision.inputs_first else array)
            left_db[decision.tensor] = sqnr_of(rows, Nearest()(rows, decision.spec).dequantized)
    return words_on_integers(left_db, "for the bits that are asked for (rounded to nearest)")


def _nothing(decisions: Mapping[str, WeightDecision]) -> str:
    firsts: dict[type[Reason], str] = {}
    for name, decision in decisions.items():
        if isinstance(decision, Float) and not isinstance(decision.reason, NoGroupwiseWeights):
            firsts.setdefault(type(decision.reason), f"'{name}': {decision.reason}")
    said = "; ".join(firsts.values())
    return (
        "the model has no linear layer (MatMul or Gemm with a constant matrix) to store in groups"
        + (f" ({said})" if said else "")
        + ". Quantize it with `onnxq quantize` or `onnxq quantize-dynamic`."
    )


def _notes_on_wide(plan: WeightPlan) -> list[str]:
    """One note on weights that gptq solves in parts."""
    parts = {
        name: len(parts_of_inputs(d.inputs))
        for name, d in plan.quantized.items()
        if d.method is Method.GPTQ
    }
    wide = {name: count for name, count in parts.items() if count > 1}
    if not wide:
        return []
    name, count = next(iter(wide.items()))
    return [
        f"{len(wide)} weights have so many inputs that gptq solves them in parts, each by itself "
        f"('{name}': {plan.quantized[name].inputs:,} inputs, {count} parts): memory stays below "
        "2 GiB, and errors in one part are not made up for in another"
    ]


def _notes_on_short_blocks(plan: WeightPlan) -> list[str]:
    """One note on weights whose last group is filled up."""
    short = {n: d for n, d in plan.quantized.items() if d.inputs % d.spec.group_size}
    if not short:
        return []
    some = next(iter(short.values()))
    return [
        f"{len(short)} weights have inputs that groups of {some.spec.group_size} do not divide "
        f"({listed(list(short))}); the last group of each row is filled up with zeros"
    ]
