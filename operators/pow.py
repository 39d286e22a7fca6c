"""Power."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import ints, normal
from onnxq.operator.nodes import constant, infinite_operand, is_constant
from onnxq.operators._function import around_kernel, lower_around, lower_function, table_kernel
from onnxq.operators._tables import all_integers, is_tabulable
from onnxq.operators.mul import Mul, products_agree

SQUARE = 2.0
CUBE = 3.0  # ONNX Runtime multiplies for these two; its other powers are slow
NAMED_ONLY = (
    "8 bits hold the powers of large and of small numbers badly (a variance decomposed into nodes)"
)


@op.register
class Pow(op.Operator):
    """Z = X^Y with broadcasting; ONNX Pow-15. A power that is not real has the lowest integer.

    Integers, for one constant exponent: 2 is com.microsoft QLinearMul of X and X, others but 3 are
    a table. Else: in float32 between integers, a constant operand as it is.
    Measured in an int8 network, ns per element: DequantizeLinear, Pow and QuantizeLinear .41 for 2,
    .45 for 3, 6.5 for other exponents; QLinearMul .18, a table .69.

    Unless the qconfig names it, it stays float for accuracy: the square of 8 bits takes 16, and a
    LayerNorm of single nodes lost 3 dB by 8.
    """

    op_type = "Pow"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """A constant operand is not quantized."""
        if reason := infinite_operand(node, (0, 1)):
            return reason
        if _exponent(constant(node, 1)) not in (None, CUBE) and not is_constant(node, 0):
            return op.Rule(op.OpCategory.ELEMENTWISE, lowered=True, named_only=NAMED_ONLY)
        exponent = node.inputs[1]
        whole = exponent is not None and exponent.dtype not in (None, ir.DataType.FLOAT)
        fixed = {slot for slot in (0, 1) if is_constant(node, slot)} | ({1} if whole else set())
        varying = tuple(slot for slot in (0, 1) if slot not in fixed)
        if not varying:
            return op.Float.because(
                "both its operands are constants, or its exponents whole numbers"
            )
        return op.Rule(
            op.OpCategory.ELEMENTWISE,
            activations=varying,
            precision=op.Precision.FLOAT_BETWEEN_QDQ,
            named_only=NAMED_ONLY,
        )

    def responses(self, node: ir.Node) -> tuple[op.Response, ...]:
        """The power of one constant exponent; x^0 is 1, whatever x."""
        exponent = _exponent(constant(node, 1))
        if exponent is None or exponent == 0:
            return ()
        return (op.Curve(0, functools.partial(_power, exponent), exponent),)

    def cases(self) -> Iterable[op.Case]:
        """Numbers that ONNX Runtime treats apart, others, vectors, whole numbers, tensors."""
        x = np.abs(normal(2, 3, 4)) + np.float32(0.5)
        for exponent in (2, 3, 0.5, -1.7, 0):
            yield op.Case(f"to the {exponent}", (x, np.array(exponent, np.float32)), (1,))
        yield op.Case("whole number", (normal(2, 3, 4), ints(2)), (1,))
        yield op.Case("vector", (x, np.array([0.5, 1, 2, 3], np.float32)), (1,))
        yield op.Case(
            "of a constant", (np.array([0.5, 1, 2, 3], np.float32), normal(2, 3, 4)), (0,)
        )
        yield op.Case("two tensors", (x, normal(4)))
        yield op.Case("whole numbers at run time", (x, ints(0, 1, 2, 3)))
        yield op.Case("empty batch", (normal(0, 3), np.array(2, np.float32)), (1,))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearMul, a table, or around float."""
        exponent = _exponent(constant(site.node, 1))
        if exponent in (None, CUBE) or is_constant(site.node, 0) or not is_tabulable(site.plan):
            return lower_around(site)
        if exponent == SQUARE:
            square = op.NodePlan((site.plan.inputs[0],) * 2, site.plan.outputs)
            return replace(site, plan=square, inputs=[site.inputs[0]] * 2).qlinear("QLinearMul", {})
        return lower_function(site, lambda x: x**exponent)

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        exponent = _exponent(call.inputs[1]) if call.plan.inputs[1] is None else None
        if exponent is None or call.plan.inputs[0] is None:
            exponents = call.inputs[1]
            if exponents is not None and exponents.dtype in (np.int32, np.int64):
                call = replace(call, inputs=(call.inputs[0], exponents.astype(np.float32)))
            return (around_kernel(call, np.power),)
        if exponent == SQUARE:
            x, p = call.integers(0), call.qparams_in(0)
            return Mul().kernel(
                replace(
                    call, inputs=(x, x), plan=op.NodePlan((p, p), call.plan.outputs), attributes={}
                )
            )
        return (table_kernel(call, lambda x: x**exponent),)

    def agrees(self, call: op.Call) -> bool:
        """Whether every machine squares all integers alike; other powers are no product of them."""
        exponents = call.inputs[1] if len(call.inputs) > 1 else None
        p, out = call.plan.inputs[0], call.plan.outputs[0]
        if p is None or out is None or _exponent(exponents) != SQUARE:
            return True
        if not is_tabulable(call.plan):
            return True  # around float
        x = all_integers(p.dtype)
        return products_agree(x, x, p, p, out)


def _power(exponent: float, x: op.Reals) -> op.Reals:
    return np.asarray(np.power(x, exponent))


def _exponent(exponents: op.Array | None) -> float | None:
    """The one number that all exponents are; None where there are more, or none is known."""
    if exponents is None or exponents.size != 1:
        return None
    return float(np.float32(exponents.item()))
