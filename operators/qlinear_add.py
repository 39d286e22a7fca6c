"""Element-wise sum of codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from onnxq.dtypes import QDType
from onnxq.operator import (
    Array,
    Case,
    IntegerCall,
    IntegerOperator,
    Ints,
    NodePlan,
    register_integer,
)
from onnxq.operator.examples import codes, scales, zero
from onnxq.operator.site import MICROSOFT
from onnxq.operators._machine_sums import fixed_sum, unfused_sum, unfused_sum_of_scalar
from onnxq.operators._qlinear import binary, binary_cases
from onnxq.operators._tables import all_codes
from onnxq.operators.add import Add, PairSum, add_codes, scalar_inside, sums
from onnxq.qparams import IntArray
from onnxq.targets.accumulation import Accumulator, Arithmetic, Effect, Overflows

OP = "QLinearAdd"


@register_integer
class QLinearAdd(IntegerOperator):
    """C = A + B of codes: A, A_scale, A_zp, B, B_scale, B_zp, C_scale, C_zp.

    com.microsoft; broadcasts. Arithmetic: see Add; on other machines,
    _machine_sums.
    """

    op_type = OP
    domains = (MICROSOFT,)

    def kernel(self, call: IntegerCall) -> tuple[Array, ...]:
        """Codes of C."""
        operands, plan = binary(call)
        return Add().kernel(call.planned(operands, plan))

    def kernel_on(self, call: IntegerCall, accumulator: Accumulator) -> tuple[Array, ...]:
        """Codes of C, on a machine that may round otherwise."""
        exact = self.kernel(call)
        if not accumulator.arithmetic.adds_codes_otherwise:
            return exact
        operands, plan = binary(call)
        pair_sum = _pair_sums(accumulator.arithmetic)[_has_scalar(operands)]
        own = sums(call.planned(operands, plan), pair_sum)
        found = _differing(operands, exact[0], own)
        if found is not None and accumulator.note is not None:
            accumulator.note(found)
        return exact if accumulator.effect is Effect.NOTED else (own,)

    def risks(self, call: IntegerCall, arithmetic: Arithmetic) -> Overflows | None:
        """Pairs of codes whose sums are rounded otherwise with these scales."""
        if not arithmetic.adds_codes_otherwise:
            return None
        if any(x is not None and not x.size for x in (*call.inputs[1:3], *call.inputs[4:])):
            nothing = np.zeros(1, np.int64)  # scales are not known before it runs
            return Overflows(nothing, nothing, nothing, nothing, 0, 0)
        filled = [x if x is None or x.size else np.zeros(1, x.dtype) for x in call.inputs]
        _, plan = binary(replace(call, inputs=filled))
        return _of_codes(call.inputs[0], call.inputs[3], plan, _pair_sums(arithmetic))

    def cases(self) -> Iterable[Case]:
        """The binary cases; and scales for which 931 pairs of 65,536 differ without fused adds."""
        yield from binary_cases()
        p, q, out = (scales(0.0481), zero(79)), (scales(0.0845), zero(164)), scales(0.0468)
        every = (codes(256, 64), *p, codes(256, 64, seed=1), *q, out, zero(140))
        yield Case("rounded otherwise by some machines", every, (1, 2, 4, 5, 6, 7))


def _pair_sums(arithmetic: Arithmetic) -> tuple[PairSum, PairSum]:
    """How codes are added: of two arrays, and where the second is a scalar."""
    if arithmetic.fixed_point:
        return fixed_sum, fixed_sum
    return unfused_sum, unfused_sum_of_scalar


def _has_scalar(operands: Sequence[Array]) -> bool:
    """Whether ONNX Runtime's inner loop takes one of them as a scalar."""
    a, b = (x.shape for x in operands)
    return scalar_inside(a, b) or scalar_inside(b, a)


def _of_codes(
    first: Array | None, second: Array | None, plan: NodePlan, pair_sums: Sequence[PairSum]
) -> Overflows | None:
    """Pairs of codes whose sums differ, none of them seen: all codes, but those of constants."""
    p, q, out = *plan.inputs, *plan.outputs
    assert p is not None
    assert q is not None
    assert out is not None
    lefts, rights = _possible(first, p.dtype), _possible(second, q.dtype)
    a, b = lefts[:, None], rights[None, :]
    exact = add_codes(a, b, p, q, out)
    differ = [exact != pair_sum(a, b, p, q, out) for pair_sum in dict.fromkeys(pair_sums)]
    row, column = np.nonzero(np.logical_or.reduce(differ))
    if not row.size:
        return None
    none = np.zeros(row.size, np.int64)
    left, right = (x.astype(np.int64) for x in (lefts[row], rights[column]))
    return Overflows(left, right, none, none, 0, 0)


def _possible(operand: Array | None, dtype: QDType) -> Ints:
    """Codes that the operand may have: its own where it is a constant, else every one."""
    if operand is None or not operand.size:
        return all_codes(dtype)
    return np.unique(operand).astype(np.int32)


def _differing(operands: Sequence[Array], exact: Array, own: IntArray) -> Overflows | None:
    """Pairs of codes that were added to different codes."""
    different = exact != own
    if not different.any():
        return None
    a, b = (np.broadcast_to(x, exact.shape)[different] for x in operands)
    pairs, count = np.unique(np.stack([a, b]).astype(np.int64), axis=1, return_counts=True)
    steps = np.abs(exact[different].astype(np.int32) - own[different])
    none = np.zeros(count.size, np.int64)
    return Overflows(pairs[0], pairs[1], none, count, int(steps.max()), int(count.sum()))
