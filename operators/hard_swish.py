"""Swish of straight pieces."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.dtypes import INT8, UINT8, QDType
from onnxq.operator.site import MICROSOFT
from onnxq.operators._divided import divided_sum
from onnxq.operators._function import anywhere, lower_around, table_kernel
from onnxq.operators._machine_sums import fixed_sum, unfused_sum, unfused_sum_of_scalar
from onnxq.operators._number import as_integer, is_scale
from onnxq.operators._tables import all_integers, is_tabulable, look_up
from onnxq.operators.add import add_integers
from onnxq.operators.mul import multiply_integers, products_agree
from onnxq.qparams import IntArray, QParams, per_tensor

SLOPE, MIDDLE = 1 / 6, 0.5  # of the gate, before it is clipped to [0, 1]
STEEPEST = 1.5  # at X = 3
FINEST, MAX_TRIES = 2.0**-16, 64  # relative increase of a gate's scale, and how often at most


@op.register
class HardSwish(op.Operator):
    """Y = X * max(0, min(1, X / 6 + 1 / 2)); ONNX HardSwish-14.

    Integers: com.microsoft QLinearAdd of X, at a sixth of its scale, and 1 / 2 gives the gate,
    whose levels span 0 to 1 (or to the gate of X's last integer, if that is less), so that
    their saturation is the clip; QLinearMul multiplies. The gate is rounded to 8 bits, at a scale
    at which all machines round the sum alike: Y is off by up to 3 / 510 more than its own rounding.
    Measured in an int8 network, ns per element: DequantizeLinear, HardSwish and QuantizeLinear .97,
    the two nodes .35 (benchmarks/results/mobile.md).
    """

    op_type = "HardSwish"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise; the result is observed."""
        return op.Rule(op.OpCategory.ELEMENTWISE, lowered=True)

    def gives_positive(self, node: ir.Node) -> bool:
        """Numbers below 0 come out near 0."""
        return True

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """An error comes out as if it were as steep everywhere as where it is steepest."""
        return (op.Linear((0,), STEEPEST**2),)

    def cases(self) -> Iterable[op.Case]:
        """Defined everywhere; numbers whose gate stays below 1."""
        yield from anywhere(10.0)
        yield op.Case("below 1", (np.linspace(-4, 1, 24, dtype=np.float32).reshape(2, 3, 4),))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearAdd and QLinearMul; wide integers, and scales that have no sixth: around float."""
        gate = _gate(site.plan)
        if gate is None:
            return lower_around(site)
        site.check_same_type()
        p, sixth = site.qparams_in(0), _sixth(site.qparams_in(0))
        integer, half = as_integer(MIDDLE, p.dtype)
        slots = [
            site.inputs[0],
            *site.scale_and_zero_point("sixth", sixth),
            site.initializer("half", integer, p.dtype),
            *site.scale_and_zero_point("half", half),
            *site.scale_and_zero_point("gate", gate),
        ]
        name = f"{site.node.name}_gate"
        gates = site.tape.op("QLinearAdd", slots, domain=MICROSOFT, name=name)
        gates.type, gates.shape = (
            ir.TensorType(ir.DataType[p.dtype.onnx]),
            site.node.outputs[0].shape,
        )
        pair = op.NodePlan((p, gate), site.plan.outputs)
        return replace(site, plan=pair, inputs=[site.inputs[0], gates]).qlinear("QLinearMul", {})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        gate = _gate(call.plan)
        if gate is None:
            return (table_kernel(call, _hard_swish),)
        x, p = call.integers(0), call.qparams_in(0)
        every = all_integers(p.dtype)
        gates = _gates(p, gate).astype(np.int32)
        return (look_up(multiply_integers(every, gates, p, gate, call.qparams_out()), x, p.dtype),)

    def agrees(self, call: op.Call) -> bool:
        """Whether every machine multiplies X and its gate alike, for every integer of X."""
        gate, out = _gate(call.plan), call.plan.outputs[0]
        if gate is None or out is None:
            return True  # around float
        p = call.qparams_in(0)
        return products_agree(all_integers(p.dtype), _gates(p, gate).astype(np.int32), p, gate, out)


def _hard_swish(x: op.Reals) -> op.Reals:
    return np.asarray(x * np.clip(x * SLOPE + MIDDLE, 0, 1))


def _sixth(p: QParams) -> QParams:
    """Qparams of X / 6 with the integers of X."""
    return QParams(p.scale * np.float32(SLOPE), p.zero_point, p.dtype)


def _gate(plan: op.NodePlan) -> QParams | None:
    """Qparams of the gate; None: there are none, or integers are not of 8 bits."""
    p = plan.inputs[0]
    if p is None or not is_tabulable(plan) or not is_scale(float(p.scale) * SLOPE):
        return None
    return _gate_of(float(p.scale), int(p.zero_point), p.dtype)


@functools.lru_cache(maxsize=1024)  # a plan asks again for every format and check
def _gate_of(scale: float, zero_point: int, dtype: QDType) -> QParams | None:
    """The gate of X with these qparams: the least scale at which every machine agrees."""
    p = per_tensor(scale, zero_point, dtype)
    last = (dtype.qmax - zero_point) * scale * SLOPE + MIDDLE
    span = dtype.qmax - dtype.qmin
    for i in range(MAX_TRIES):
        gate = per_tensor(min(1.0, last) / span * (1 + i * FINEST), dtype.qmin, dtype)
        # ONNX Runtime on x86 makes uint8 of int8, and floats round otherwise there
        if _agree(p, gate, 0) and (dtype != INT8 or _agree(p, gate, UINT8.qmin - INT8.qmin)):
            return gate
    return None


def _agree(p: QParams, gate: QParams, shift: int) -> bool:
    """Whether all machines add a half to a sixth of X, for every integer of X, alike."""
    integer, half = as_integer(MIDDLE, p.dtype)
    kind = UINT8 if shift else p.dtype
    sixth, other, out = (
        QParams(q.scale, q.zero_point.astype(np.int32) + shift, kind)
        for q in (_sixth(p), half, gate)
    )
    pair = all_integers(p.dtype) + shift, integer.astype(np.int32) + shift
    wanted = add_integers(*pair, sixth, other, out)
    sums = (fixed_sum, unfused_sum, unfused_sum_of_scalar, divided_sum)
    return all(np.array_equal(wanted, each(*pair, sixth, other, out)) for each in sums)


def _gates(p: QParams, gate: QParams) -> IntArray:
    """Integers of the gate for every integer of X, ascending, (256,)."""
    integer, half = as_integer(MIDDLE, p.dtype)
    return add_integers(all_integers(p.dtype), integer.astype(np.int32), _sixth(p), half, gate)
