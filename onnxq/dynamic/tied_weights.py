"""Weights that several nodes read, and weights that are one matrix, transposed or not.

An embedding that is, transposed, the output matrix too, is the usual one.
"""

from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import INT8
from onnxq.dynamic.dynamic_decision import DynamicWeightPlan, QuantizeDynamic
from onnxq.dynamic.dynamic_weights import StorageKey, can_turn, unpermuted
from onnxq.errors import listed
from onnxq.graph.walk import node_name, value_name
from onnxq.operator.nodes import tensor_of
from onnxq.qparams import PerBlock, PerChannel

MATRIX = 2  # rank


def find_tied(weights: Iterable[ir.Value]) -> dict[ir.Value, ir.Value]:
    """Matrix -> an earlier one whose transpose it is.

    A matrix is read once, and only where another one has its shape transposed: they may be mapped
    from disk, or computed when they are read. Whole matrices are compared where the first row of
    one is the first column of the other.
    """
    by_shape: dict[tuple[int, ...], list[ir.Value]] = {}
    for value in dict.fromkeys(weights):
        tensor = value.const_value
        if tensor is not None and len(tensor.shape) == MATRIX:
            by_shape.setdefault(tuple(tensor.shape.numpy()), []).append(value)
    rows: dict[tuple[tuple[int, ...], bytes], list[ir.Value]] = {}
    twins: dict[ir.Value, ir.Value] = {}
    for shape, values in by_shape.items():
        if shape[::-1] not in by_shape or (len(values) == 1 and shape == shape[::-1]):
            continue
        for value in values:
            array = tensor_of(value).numpy()
            row, column = array[:1].tobytes(), array[:, :1].tobytes()
            alike = rows.get((shape[::-1], column), [])
            twin = next((other for other in alike if is_transpose_of(value, other)), None)
            if twin is not None:
                twins[value] = twin
                continue
            rows.setdefault((shape, row), []).append(value)
    return twins


def is_transpose_of(value: ir.Value, other: ir.Value) -> bool:
    """Whether two constant matrices hold the same numbers, rows being columns."""
    a, b = value.const_value, other.const_value
    if a is None or b is None:
        return False
    if len(a.shape) != MATRIX or tuple(a.shape) != tuple(b.shape)[::-1]:
        return False
    left, right = a.numpy(), b.numpy()
    if not np.array_equal(left[:1], right[:, :1].T):  # nearly always enough, and cheap
        return False
    return np.array_equal(left, right.T)


def shared_limits(
    limits: Mapping[StorageKey, int], twins: Mapping[str, str]
) -> dict[StorageKey, int]:
    """`limits`, with the narrower one for a weight and its twin: their integers are equal."""
    shared = dict(limits)
    for key in limits:
        source = twins.get(key.tensor)
        if source is None or key.axis is None or key.block_size is not None:
            continue
        mirror = type(key)(source, 1 - key.axis, None, key.observer)
        if mirror in shared:
            shared[key] = shared[mirror] = min(shared[key], shared[mirror])
    return shared


def notes_on_tied(plans: Iterable[DynamicWeightPlan], twins: Mapping[str, str]) -> list[str]:
    """One note per twin whose integers will not be the other's: both are stored."""
    precisions: dict[str, set[tuple[object, ...]]] = {}
    for plan in plans:
        precisions.setdefault(plan.tensor, set()).add(_integers_of(plan))
    return [
        f"weight '{name}' is '{source}' transposed; both are stored, for their integers differ or "
        "one of them stays in float."
        for name, source in twins.items()
        if precisions.get(name, set()) != precisions.get(source, set())
    ]


def notes_on_both_parts(static: AbstractSet[str], dynamic: Iterable[QuantizeDynamic]) -> list[str]:
    """One note per weight that static and dynamic nodes read: each part stores its own integers."""
    both = {w.tensor for decision in dynamic for w in decision.weights if w.tensor in static}
    return [
        f"weight '{name}' is read by nodes that are quantized statically and by others that are "
        "quantized dynamically; each part stores integers of its own."
        for name in sorted(both)
    ]


def notes_on_copies(
    nodes: Iterable[ir.Node], decisions: Mapping[str, QuantizeDynamic], static: Container[str]
) -> list[str]:
    """One note per weight that stands in the file more than once, because its readers differ."""
    plans = {n: {w.slot: w for w in d.weights} for n, d in decisions.items()}
    stored = {w.tensor for slots in plans.values() for w in slots.values()}
    copies: dict[str, dict[object, tuple[str, list[str]]]] = {}
    for node in nodes:
        name = node_name(node)
        for slot, value in enumerate(() if name in static else node.inputs):
            if value is None or not value.is_initializer() or value.name not in stored:
                continue
            plan = plans.get(name, {}).get(slot)
            key = None if plan is None else _stored_as(plan, node)
            words = "float32" if plan is None else _words(plan)
            readers = copies.setdefault(value_name(value), {}).setdefault(key, (words, []))[1]
            readers.append(name)
    return [
        f"weight '{tensor}' is in the file {len(kinds)} times: "
        + "; ".join(f"{words} for {listed(names)}" for words, names in kinds.values())
        for tensor, kinds in copies.items()
        if len(kinds) > 1
    ]


def _stored_as(plan: DynamicWeightPlan, node: ir.Node) -> tuple[object, ...]:
    """Key on which two readers share one tensor of the file."""
    blocks = plan.qparams is not None and isinstance(plan.qparams.granularity, PerBlock)
    perm = None if can_turn(plan.qparams) else plan.perm
    return (_integers_of(plan), perm, node.graph if blocks else None)


def _words(plan: DynamicWeightPlan) -> str:
    """How the weight is stored: "int8 with a scale per index of axis 1"."""
    if plan.qparams is None:
        return "float16"
    granularity = unpermuted(plan.qparams, plan.perm).granularity
    limit = "" if plan.integer_limit is None else f" within +-{plan.integer_limit}"
    if isinstance(granularity, PerBlock):
        where = f" in groups of {granularity.size} along axis {granularity.axis}"
    elif isinstance(granularity, PerChannel):
        where = f" with a scale per index of axis {granularity.axis}"
    else:
        where = " with one scale"
    return f"{plan.qparams.dtype}{limit}{where}"


def _integers_of(plan: DynamicWeightPlan) -> tuple[object, ...]:
    """Key to integers, but for the order of axes."""
    qparams = plan.qparams
    if qparams is None:
        return ("float16",)
    scale, zero_point = qparams.scale, qparams.zero_point
    # Gather has no kernel for blocks of int8: it writes uint8 integers, which no MatMul shares
    if isinstance(qparams.granularity, PerBlock) and qparams.dtype != INT8:
        axis = qparams.granularity.axis
        scale, zero_point = np.moveaxis(scale, axis, 0), np.moveaxis(zero_point, axis, 0)
    numbers = (np.ravel(scale).tobytes(), np.ravel(zero_point).tobytes())
    return (qparams.dtype, type(qparams.granularity), plan.integer_limit, *numbers)
