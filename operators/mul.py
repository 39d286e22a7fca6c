"""Element-wise product."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operator.nodes import constant, infinite_operand, is_constant
from onnxq.operators._channel_scales import on_operands
from onnxq.operators._divided import divided_product
from onnxq.operators._integer_pairs import PairFunction, saturated_on_x86
from onnxq.operators._machine_sums import fused_product
from onnxq.operators._tables import TABLE_BITS, all_integers, look_up_pairs
from onnxq.qparams import IntArray, QParams


@op.register
class Mul(op.Operator):
    """C = A * B with broadcasting; ONNX Mul-14.

    Integers: com.microsoft QLinearMul,
    saturate(rint(float32((a - a_zp) (b - b_zp)) * (a_scale * b_scale / c_scale) + c_zp)): the zero
    point is added before rounding here. On ARM, see _machine_sums; in WebAssembly, _divided.
    """

    op_type = "Mul"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Both operands are activations; a constant one is quantized per tensor."""
        return infinite_operand(node, (0, 1)) or op.Rule(
            op.OpCategory.ELEMENTWISE, activations=(0, 1)
        )

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """Curve of a square, Linear beside a constant, else Factored by the other operand."""
        if node.inputs[0] is node.inputs[1]:
            return (op.Curve(0, np.square, 2.0),)
        for slot in (0, 1):
            factors = constant(node, 1 - slot)
            if factors is not None and factors.size and not is_constant(node, slot):
                return (op.Linear((slot,), float(np.square(factors, dtype=np.float64).mean())),)
        return (op.Factored(0, 1), op.Factored(1, 0))

    def scaled(self, node: ir.Node, scale: op.Reals) -> tuple[Mapping[int, op.Reals], ...]:
        """Scaling the result scales either operand."""
        either = (on_operands(node, (slot,), scale) for slot in (0, 1))
        return tuple(way for way in either if way is not None)

    def cases(self) -> Iterable[op.Case]:
        x = normal(2, 3, 4)
        yield op.Case("same shape", (x, normal(2, 3, 4, seed=1)))
        yield op.Case("constant vector", (x, normal(4, seed=1)), (1,))
        yield op.Case("channels", (normal(3, 1, seed=1), x))
        yield op.Case("scalar", (x, np.array(0.3, np.float32)), (1,))
        yield op.Case("empty batch", (normal(0, 3), normal(3, seed=1)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        return site.qlinear("QLinearMul", {})

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        return (products(call, multiply_integers),)

    def agrees(self, call: op.Call) -> bool:
        """Whether ARM and WebAssembly give the same, for all pairs of 8-bit integers."""
        p, q, out = call.qparams_in(0), call.qparams_in(1), call.plan.outputs[0]
        if out is None or max(p.dtype.bits, q.dtype.bits) > TABLE_BITS:
            return True  # not a QLinearMul
        a, b = all_integers(p.dtype)[:, None], all_integers(q.dtype)[None, :]
        return products_agree(a, b, p, q, out)


def products(call: op.Call, pair_product: PairFunction) -> IntArray:
    """Integers of A * B, as `pair_product` multiplies them."""
    a, b = call.integers(0), call.integers(1)
    p, q, out = call.qparams_in(0), call.qparams_in(1), call.qparams_out()

    def of_pairs(first: op.Ints, second: op.Ints) -> IntArray:
        return pair_product(first, second, p, q, out)

    return look_up_pairs(call, of_pairs, (a, p.dtype), (b, q.dtype))


def products_agree(a: op.Ints, b: op.Ints, p: QParams, q: QParams, out: QParams) -> bool:
    """Whether all machines multiply these integers alike; arguments as `multiply_integers`."""
    exact = multiply_integers(a, b, p, q, out)
    others = (divided_product, fused_product)
    return all(np.array_equal(exact, other(a, b, p, q, out)) for other in others)


def multiply_integers(a: op.Ints, b: op.Ints, p: QParams, q: QParams, out: QParams) -> IntArray:
    """QLinearMul's arithmetic on broadcasting int32 arrays; p, q, out: qparams of a, b, result."""
    products = (a - p.zero_point.astype(np.int32)) * (b - q.zero_point.astype(np.int32))
    value = products.astype(np.float32) * (p.scale * q.scale / out.scale)
    return saturated_on_x86(value + out.zero_point.astype(np.float32), out)
