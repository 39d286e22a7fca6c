"""Which precision a node gets: the one that the qconfig names, else the fastest on the target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnxq.dtypes import BYTE_BITS, QDType
from onnxq.dynamic import reasons
from onnxq.dynamic.dynamic_decision import Objective
from onnxq.dynamic.dynamic_weights import can_be_groupwise
from onnxq.errors import QConfigError
from onnxq.graph.walk import node_name, value_name
from onnxq.observers import ObserverSpec
from onnxq.operator import DynamicRule, Float, Precision
from onnxq.operator.nodes import sizes
from onnxq.targets import AS_FAST, Target
from onnxq.targets.speedups import GATES, LINEAR_OPS, R_SLOT

MATRIX = 2  # its axes
CLOSE = 0.9  # share of the largest speedup that is as good: measurements differ by as much


def choose_precision(
    node: ir.Node,
    rule: DynamicRule,
    named: Precision | None,
    dtype: QDType | None,
    target: Target,
    objective: Objective,
    rows: Rows,
) -> Precision | Float:
    """The precision of a node, or why it has none."""
    wanted = Precision.WEIGHT_ONLY_FLOAT16 if dtype is None and named is None else named
    if wanted is not None:
        return _named(node, rule, wanted, dtype)
    assert dtype is not None
    precisions = [p for p in rule.precisions if _suits(p, node, rule, dtype)]
    if not precisions:
        return Float(reasons.NoPrecisionTakes(node.op_type, _names(rule.precisions), str(dtype)))
    if dtype.bits == BYTE_BITS and _is_shared(node, rule):
        groupwise = Precision.WEIGHT_ONLY_GROUPWISE
        precisions = [p for p in precisions if p is not groupwise] or precisions
    speedups = {p: _speedup(node, rule, p, dtype, target, rows) for p in precisions}
    known = {p: speedup for p, speedup in speedups.items() if speedup is not None}
    best = _fastest(known) or precisions[0]
    may_stay = objective is Objective.SPEED and not rule.no_float_kernel
    if may_stay and known.get(best, AS_FAST) < AS_FAST:
        assumed = rows.least if rows.assumed else None
        return Float(reasons.SlowerThanFloat(str(target), known[best], best, assumed))
    return best


def _fastest(speedups: Mapping[Precision, float]) -> Precision | None:
    """The first precision nearly as fast as the fastest, and no slower than float if that is not.

    Precisions come in the rule's order, the usual one first; differences below CLOSE are noise.
    """
    most = max(speedups.values(), default=0.0)
    enough = max(CLOSE * most, min(most, AS_FAST))
    return next((precision for precision, speedup in speedups.items() if speedup >= enough), None)


def stored_type(specs: Sequence[ObserverSpec]) -> QDType | Float | None:
    """The type of the weights' integers, one for all; None for float16; or why there is none."""
    found = {_type_of(spec) for spec in specs}
    if len(found) > 1:
        kinds = ", ".join(sorted("float16" if t is None else t.name for t in found))
        return Float(reasons.DifferentTypes(kinds))
    return found.pop()


def _type_of(spec: ObserverSpec) -> QDType | None:
    dtype = spec().dtype
    if not dtype.is_integer or spec.name == "NoopObserver":
        return None
    if dtype.bits > BYTE_BITS:
        raise QConfigError(
            f"{spec.name}: dynamic quantization stores weights in 8 bits or fewer, or as float16; "
            f"got {dtype}."
        )
    return dtype


def _named(
    node: ir.Node, rule: DynamicRule, precision: Precision, dtype: QDType | None
) -> Precision | Float:
    """The precision, or why this node does not have it."""
    if dtype is None and precision is not Precision.WEIGHT_ONLY_FLOAT16:
        raise QConfigError(
            f"'{node_name(node)}': the qconfig names precision '{precision.value}' and float16 "
            "weights, which only 'weight_only_float16' has. Leave one of the two out"
            + (", or the block size." if precision is Precision.WEIGHT_ONLY_GROUPWISE else ".")
        )
    if precision not in rule.precisions:
        missing = rule.missing if precision is Precision.DYNAMIC_INT8 else ""
        others = _names(rule.precisions)
        return Float(reasons.LacksPrecision(node.op_type, precision.value, missing, others))
    if dtype is None or precision is Precision.WEIGHT_ONLY_FLOAT16:
        return precision
    if precision is Precision.WEIGHT_ONLY_GROUPWISE and dtype.bits < rule.min_bits:
        return Float(reasons.TooNarrow(rule.min_bits, str(dtype)))
    if not _suits(precision, node, rule, dtype):
        return Float(reasons.NoMatrix(precision.value))
    return precision


def _suits(precision: Precision, node: ir.Node, rule: DynamicRule, dtype: QDType) -> bool:
    """Whether integer weights of that type can have the precision."""
    if precision is Precision.WEIGHT_ONLY_GROUPWISE:
        values = [(node.inputs[weight.slot], weight) for weight in rule.weights]
        return dtype.bits >= rule.min_bits and all(
            v is not None and can_be_groupwise(v, weight) for v, weight in values
        )
    return precision is not Precision.WEIGHT_ONLY_FLOAT16


def _is_shared(node: ir.Node, rule: DynamicRule) -> bool:
    """Whether another linear layer reads one of its weights too.

    Where 32 steps do, integer MatMuls were at least 0.9 times as fast as blocks of 8 bits wherever
    one of the two was faster than float, and up to 2.4 times (hidden 128 to 1024, batch 1 to 32).
    """
    values = [node.inputs[weight.slot] for weight in rule.weights]
    readers = [[use.node for use in v.uses()] for v in values if v is not None]
    return any(sum(n.op_type in LINEAR_OPS for n in nodes) > 1 for nodes in readers)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of the activation in one MatMul, as the rule counts them.

    Attributes:
        known: how many; None: a size of theirs is open.
        least: how many at least: the product of the sizes that are known, such as a sequence's,
            and of those that are expected: more may come.
        assumed: the model leaves some of these sizes open.
    """

    known: int | None
    least: int
    assumed: bool = False


def _speedup(
    node: ir.Node,
    rule: DynamicRule,
    precision: Precision,
    dtype: QDType,
    target: Target,
    rows: Rows,
) -> float | None:
    """Time in float / time in that precision, as the target has it for such a shape."""
    k, n = matrix_sizes(node, rule)
    measured = rule.measured_as or node.op_type
    kind = (measured, precision.value, dtype.bits)
    return target.dynamic_speedup(*kind, k, n, rows.known, rows.least)


def matrix_sizes(node: ir.Node, rule: DynamicRule) -> tuple[int, int]:
    """(k, n): numbers summed per result, results; at least 1 each.

    Of a recurrent layer (R and W: (directions, n, hidden or inputs)), k is the hidden size, or half
    of hidden size and inputs where these are fewer: layers were measured with as many of both.
    """
    shapes = [sizes(node, weight.slot) for weight in rule.weights]
    if node.op_type in GATES:
        hidden = sizes(node, R_SLOT)[-1]
        mean = sum(shape[-1] for shape in shapes) // len(shapes)
        return max(min(hidden, mean), 1), max(shapes[0][1], 1)
    weight, shape = rule.weights[0], shapes[0]
    if weight.axis is None and len(shape) > MATRIX:  # one matrix per element of a batch
        return max(shape[-2], 1), max(shape[-1], 1)
    n = shape[weight.axis] if weight.axis is not None and shape else 1
    return max(math.prod(shape) // max(n, 1), 1), max(n, 1)


def rows_of(node: ir.Node, rule: DynamicRule, sizes: Mapping[str, Sequence[int]]) -> Rows:
    """Rows of a linear layer's activation."""
    declared, counted = _rows(node, rule, {}), _rows(node, rule, sizes)
    known = [size for size in counted or () if isinstance(size, int)]
    count = math.prod(known)
    assumed = declared is not None and not all(isinstance(size, int) for size in declared)
    is_known = counted is not None and len(known) == len(counted) and not assumed
    return Rows(count if is_known else None, max(count, 1), assumed)


def _rows(
    node: ir.Node, rule: DynamicRule, sizes: Mapping[str, Sequence[int]]
) -> list[int | ir.SymbolicDim] | None:
    """Sizes of the activation whose product is its rows; None: its rank is not known."""
    weights = {weight.slot for weight in rule.weights}
    slot = next((s for s, v in enumerate(node.inputs) if v is not None and s not in weights), None)
    value = None if slot is None else node.inputs[slot]
    if value is None or value.shape is None:
        return None
    shape: tuple[int | ir.SymbolicDim, ...] = tuple(sizes.get(value_name(value), value.shape))
    rank = len(shape)
    if rank <= 1:  # a vector is one row, whichever side of the MatMul it stands on
        return []
    skipped = {axis % rank for axis in rule.not_rows}
    return [size for axis, size in enumerate(shape) if axis not in skipped]


def _names(precisions: Sequence[Precision]) -> str:
    return ", ".join(f"'{precision.value}'" for precision in precisions)
