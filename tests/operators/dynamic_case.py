"""The dynamically quantized form of a Case, as `lower_dynamic` alone writes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
from onnx_ir.tape import Tape

from onnxq.affine import quantize
from onnxq.dtypes import INT8, QDType
from onnxq.operator import (
    Array,
    Case,
    DynamicNodePlan,
    DynamicRule,
    DynamicSite,
    Operator,
    Precision,
)
from onnxq.qparams import PerChannel, PerTensor, QParams
from tests.operators.builder import IR_VERSION, MICROSOFT, names, node_of, run_exactly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.core.arrays import Singles
    from onnxq.operator import DynamicWeight


def dynamic_rule_of(operator: Operator, case: Case) -> DynamicRule:
    """The case's dynamic rule, which must not be Float."""
    rule = operator.dynamic_rule(node_of(operator, case))
    assert isinstance(rule, DynamicRule), f"{operator.op_type}, {case.name}: {rule.reason.words}"
    return rule


def fitted(w: Singles, axis: int | None, dtype: QDType = INT8) -> QParams:
    """Symmetric qparams, per channel or, without an axis, per tensor."""
    others = tuple(i for i in range(w.ndim) if axis is None or i != axis)
    scale = np.asarray(np.maximum(np.abs(w).max(axis=others), 1e-6) / dtype.qmax, np.float32)
    zero_point = np.zeros(scale.shape, dtype.storage)
    granularity = PerTensor() if axis is None else PerChannel(axis)
    return QParams(scale, zero_point, dtype, granularity)


def stored(x: Array, weight: DynamicWeight) -> tuple[Singles, int | None]:
    """A float weight in its stored layout, and its channel axis there."""
    values = np.asarray(x, np.float32)
    if weight.perm is None:
        return values, weight.axis
    axis = None if weight.axis is None else weight.perm.index(weight.axis)
    return np.ascontiguousarray(np.transpose(values, weight.perm)), axis


def plan_and_integers(
    operator: Operator, case: Case, form: Precision, qparams: Sequence[QParams] | None
) -> tuple[DynamicNodePlan, dict[int, Array]]:
    """The plan, and by slot what takes the place of the weights.

    Args:
        operator: whose case it is.
        case: its weights are constants.
        form: one of the rule's.
        qparams: in the stored layout; None: int8, symmetric, by the rule's axis.
    """
    weights = dynamic_rule_of(operator, case).weights
    arrays = [stored(np.asarray(case.inputs[weight.slot]), weight) for weight in weights]
    if form is Precision.WEIGHT_ONLY_FLOAT16:
        halves = [w.astype(np.float16) for w, _ in arrays]
        plan = DynamicNodePlan(form, (None,) * len(weights))
        return plan, {weight.slot: half for weight, half in zip(weights, halves, strict=True)}
    found = tuple(qparams or (fitted(w, axis) for w, axis in arrays))
    integers = [quantize(w, p) for (w, _), p in zip(arrays, found, strict=True)]
    return DynamicNodePlan(form, found), {
        weight.slot: q for weight, q in zip(weights, integers, strict=True)
    }


def dynamic_model(
    operator: Operator, case: Case, form: Precision, qparams: Sequence[QParams] | None = None
) -> ir.Model:
    """The case in that form; arguments as `plan_and_integers`."""
    node, tape = node_of(operator, case), Tape()
    plan, weights = plan_and_integers(operator, case, form, qparams)
    values: list[ir.Value | None] = []
    for slot, (name, x) in enumerate(zip(names(case), case.inputs, strict=True)):
        if x is None:
            values.append(None)
        elif slot in weights:
            tensor = ir.tensor(weights[slot])
            values.append(tape.initializer(tensor, name=f"{name}_quantized"))
        elif slot in case.constants:
            values.append(tape.initializer(ir.tensor(x), name=name))
        else:
            values.append(ir.val(name, dtype=ir.tensor(x).dtype, shape=x.shape))
    outputs = list(operator.lower_dynamic(DynamicSite(tape, node, values, plan)))
    for i, value in enumerate(outputs):
        value.name = f"out{i}"
    graph = ir.Graph(
        [v for v in values if v is not None and v.const_value is None],
        outputs,
        nodes=tape.nodes,
        initializers=tape.initializers,
        opset_imports={"": max(case.opset, 13), MICROSOFT: 1},
        name="dynamic",
    )
    return ir.Model(graph, ir_version=IR_VERSION)


def run_dynamic(
    operator: Operator, case: Case, form: Precision, qparams: Sequence[QParams] | None = None
) -> list[Array]:
    """Outputs of that form; exact sums (see `run_exactly`)."""
    return run_exactly(dynamic_model(operator, case, form, qparams), case, case.inputs)
