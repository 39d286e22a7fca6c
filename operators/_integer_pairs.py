"""Pairs of 8-bit integers whose sum or product on a machine differs from exact arithmetic."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from onnxq.dtypes import QDType
from onnxq.operator import Array, IntegerCall, Ints, NodePlan
from onnxq.operators._qlinear import binary
from onnxq.operators._tables import all_integers
from onnxq.qparams import FloatArray, IntArray, QParams
from onnxq.targets.accumulation import Accumulator, Overflows, SaturationEffect

PairFunction = Callable[[Ints, Ints, QParams, QParams, QParams], IntArray]
"""Integers of broadcasting int32 arrays a and b; then the qparams of a, b, result."""


def saturated_on_x86(value: FloatArray, out: QParams) -> IntArray:
    """saturate(rint(value)) of float32; x86 converts what is not below 2^31 to the least int32."""
    integers = np.where(value < 2.0**31, np.rint(value), out.dtype.qmin)
    return np.asarray(np.clip(integers, out.dtype.qmin, out.dtype.qmax).astype(out.dtype.storage))


def noted(
    call: IntegerCall, exact: tuple[Array, ...], own: IntArray, accumulator: Accumulator
) -> tuple[Array, ...]:
    """The machine's integers, or the exact ones where differences are only noted.

    Args:
        call: of A, A_scale, A_zp, B, B_scale, B_zp, C_scale, C_zp.
        exact: integers of C.
        own: likewise, of the machine.
        accumulator: hears of the pairs that differ.
    """
    different = exact[0] != own
    if different.any() and accumulator.note is not None:
        accumulator.note(_differing(binary(call)[0], exact[0], own, different))
    return exact if accumulator.effect is SaturationEffect.NOTED else (own,)


def possible_pairs(
    call: IntegerCall, exact: PairFunction, others: Iterable[PairFunction]
) -> Overflows | None:
    """Pairs of integers, not seen yet, for which one of `others` differs.

    Args:
        call: as in `noted`; arrays without elements are not known before the model runs.
        exact: arithmetic to compare with.
        others: arithmetic of the machine, in each way that it may take.
    """
    if any(x is not None and not x.size for x in (*call.inputs[1:3], *call.inputs[4:])):
        nothing = np.zeros(1, np.int64)  # scales are not known before it runs
        return Overflows(nothing, nothing, nothing, nothing, 0, 0)
    filled = [x if x is None or x.size else np.zeros(1, x.dtype) for x in call.inputs]
    _, plan = binary(replace(call, inputs=filled))
    return _of_integers(call.inputs[0], call.inputs[3], plan, exact, others)


def _of_integers(
    first: Array | None,
    second: Array | None,
    plan: NodePlan,
    exact: PairFunction,
    others: Iterable[PairFunction],
) -> Overflows | None:
    """Pairs of integers whose results differ, over all values of operands that vary."""
    p, q, out = *plan.inputs, *plan.outputs
    assert p is not None
    assert q is not None
    assert out is not None
    lefts, rights = _possible(first, p.dtype), _possible(second, q.dtype)
    a, b = lefts[:, None], rights[None, :]
    wanted = exact(a, b, p, q, out)
    differ = [wanted != other(a, b, p, q, out) for other in dict.fromkeys(others)]
    row, column = np.nonzero(np.logical_or.reduce(differ))
    if not row.size:
        return None
    none = np.zeros(row.size, np.int64)
    left, right = (x.astype(np.int64) for x in (lefts[row], rights[column]))
    return Overflows(left, right, none, none, 0, 0)


def _possible(operand: Array | None, dtype: QDType) -> Ints:
    """Integers that the operand may have: its own where it is a constant, else every one."""
    if operand is None or not operand.size:
        return all_integers(dtype)
    return np.unique(operand).astype(np.int32)


def _differing(
    operands: Sequence[Array], exact: Array, own: IntArray, different: Array
) -> Overflows:
    """Pairs of integers with different results."""
    a, b = (np.broadcast_to(x, exact.shape)[different] for x in operands)
    pairs, count = np.unique(np.stack([a, b]).astype(np.int64), axis=1, return_counts=True)
    steps = np.abs(exact[different].astype(np.int32) - own[different])
    none = np.zeros(count.size, np.int64)
    return Overflows(pairs[0], pairs[1], none, count, int(steps.max()), int(count.sum()))
