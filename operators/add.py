"""Element-wise sum."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant_operand, infinite_operand
from onnxq.operators._channel_scales import on_operands
from onnxq.operators._divided import divided_sum
from onnxq.operators._fma import fma
from onnxq.operators._integer_pairs import PairFunction, saturated_on_x86
from onnxq.operators._machine_sums import fixed_sum, unfused_sum
from onnxq.operators._tables import TABLE_BITS, all_integers, look_up_pairs
from onnxq.qparams import IntArray, QParams


@op.register
class Add(op.Operator):
    """C = A + B with broadcasting; ONNX Add-14.

    Integers: com.microsoft QLinearAdd, which computes in float32 with fused multiply-adds:
    ra = a_scale / c_scale, rb = b_scale / c_scale, r = c_zp - fma(ra, a_zp, rb * b_zp),
    c = saturate(rint(fma(a, ra, fma(b, rb, r)))).
    """

    op_type = "Add"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Both operands are activations; a constant one is quantized per tensor."""
        return infinite_operand(node, (0, 1)) or op.Rule(
            op.OpCategory.ELEMENTWISE, activations=(0, 1)
        )

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """Errors of both operands come out as they are."""
        return (op.Linear((0, 1), 1.0, constant_operand(node)),)

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling the result scales both operands alike."""
        both = on_operands(node, (0, 1), scale)
        return () if both is None else (both,)

    def cases(self) -> Iterable[op.Case]:
        """Broadcasts of every kind: the inner one changes how ONNX Runtime rounds."""
        x = normal(2, 3, 4)
        yield op.Case("same shape", (x, normal(2, 3, 4, seed=1)))
        yield op.Case("constant vector", (x, normal(4, seed=1)), (1,))
        yield op.Case("channels", (x, normal(3, 1, seed=1)), (1,))
        yield op.Case("channels first", (normal(3, 1, seed=1), x), (0,))
        yield op.Case("scalar", (x, normal(seed=1)), (1,))
        yield op.Case("scalar first", (normal(seed=1), x), (0,))
        yield op.Case("two scalars", (normal(), normal(1, seed=1)))
        yield op.Case("outer product", (normal(3, 1), normal(1, 4, seed=1)))
        yield op.Case("empty batch", (normal(0, 3), normal(3, seed=1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.qlinear("QLinearAdd", {})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return (sums(call, add_integers),)

    def agrees(self, call: op.Call) -> bool:
        """Whether ARM, x86 without AVX2 and WebAssembly agree, for all pairs of 8-bit integers."""
        return _sums_agree(call, (add_integers, fixed_sum, unfused_sum, divided_sum))

    def agrees_with_itself(self, call: op.Call) -> bool:
        """Whether either operand may be the one that is added first, for all pairs of integers."""
        return _sums_agree(call, (add_integers,))


def _sums_agree(call: op.Call, pair_sums: Iterable[PairFunction]) -> bool:
    """Whether all of them give the same as `add_integers`, in either role."""
    p, q, out = call.qparams_in(0), call.qparams_in(1), call.plan.outputs[0]
    if out is None or max(p.dtype.bits, q.dtype.bits) > TABLE_BITS:
        return True  # not a QLinearAdd
    a, b = all_integers(p.dtype)[:, None], all_integers(q.dtype)[None, :]
    wanted = add_integers(a, b, p, q, out)
    return all(
        np.array_equal(wanted, other)
        for pair_sum in pair_sums
        for other in (pair_sum(a, b, p, q, out), pair_sum(b, a, q, p, out))
    )


def sums(call: op.Call, pair_sum: PairFunction) -> IntArray:
    """Integers of A + B by that arithmetic."""
    a, b = call.integers(0), call.integers(1)
    p, q = call.qparams_in(0), call.qparams_in(1)
    out = call.qparams_out()
    if scalar_inside(a.shape, b.shape):
        a, b, p, q = b, a, q, p

    def of_pairs(first: op.Ints, second: op.Ints) -> IntArray:
        return pair_sum(first, second, p, q, out)

    return look_up_pairs(call, of_pairs, (a, p.dtype), (b, q.dtype))


def add_integers(a: op.Ints, b: op.Ints, p: QParams, q: QParams, out: QParams) -> IntArray:
    """QLinearAdd's arithmetic on broadcasting int32 arrays; p, q, out: qparams of a, b, result."""
    ratio_a, ratio_b = p.scale / out.scale, q.scale / out.scale
    zero_b = np.float32(ratio_b * q.zero_point.astype(np.float32))
    rest = out.zero_point.astype(np.float32) - fma(ratio_a, p.zero_point, zero_b)
    return saturated_on_x86(fma(a, ratio_a, fma(b, ratio_b, rest)), out)


def scalar_inside(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether ONNX Runtime's inner loop takes A as a scalar, which swaps the operands' roles."""
    if len(a) == 0 or len(b) == 0:
        last = (b or a or (1,))[-1]
        return len(a) == 0 or last == 1
    for m, n in zip(reversed(a), reversed(b), strict=False):
        if max(m, n) > 1:
            return m == 1
    return True
