"""Logistic function of straight pieces."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq import operator as op
from onnxq.operator.examples import normal
from onnxq.operators._clamp import bound_integers
from onnxq.operators._function import lower_around, table_kernel
from onnxq.operators._number import as_integer, is_scale, lower_with_number, number_kernel
from onnxq.operators._tables import is_tabulable
from onnxq.operators.add import Add
from onnxq.qparams import QParams

ALPHA, BETA = 0.2, 0.5  # of the ONNX schema
MOST_LSB = 256  # of X, from its zero point


@op.register
class HardSigmoid(op.Operator):
    """Y = max(0, min(1, alpha * X + beta)); ONNX HardSigmoid-6.

    Integers, for alpha > 0: com.microsoft QLinearAdd of X at alpha times its scale and of beta, a
    integer with that scale; then a Clip between the integers of 0 and 1, where these are not min
    and max. Measured in an int8 network, ns per element: DequantizeLinear, HardSigmoid and
    QuantizeLinear .23, QLinearAdd .06, with a Clip .08. Another alpha: in float32 between integers.
    """

    op_type = "HardSigmoid"

    def rule(self, node: ir.Node) -> op.Rule | op.Float:
        """Element-wise, with results in [0, 1] whatever the data."""
        alpha = node.attributes.get_float("alpha", ALPHA)
        rises = alpha > 0
        precision = op.Precision.INT8 if rises else op.Precision.FLOAT_BETWEEN_QDQ
        return op.Rule(
            op.OpCategory.ELEMENTWISE, output_range=(0.0, 1.0), precision=precision, lowered=rises
        )

    def cases(self) -> Iterable[op.Case]:
        yield op.Case("plain", (normal(2, 3, 4),))
        yield op.Case("as torch does", (5 * normal(2, 3, 4),), (), {"alpha": 1 / 6})
        yield op.Case("beta below 0", (5 * normal(2, 3, 4),), (), {"alpha": 0.7, "beta": -0.4})
        yield op.Case("beta 0", (normal(2, 3, 4),), (), {"beta": 0.0})
        yield op.Case("alpha below 0", (5 * normal(2, 3, 4),), (), {"alpha": -0.2})
        yield op.Case("single", (normal(1),))
        yield op.Case("empty batch", (normal(0, 3),))

    def lower(self, site: op.Site) -> Sequence[ir.Value]:
        """QLinearAdd, with a Clip where the levels leave [0, 1]; else around float."""
        alpha = site.node.attributes.get_float("alpha", ALPHA)
        q = site.qparams_out()
        beta = float(np.float32(site.node.attributes.get_float("beta", BETA)))
        scaled = _scaled(site.qparams_in(0), alpha, beta, q)
        if scaled is None or not is_tabulable(site.plan):
            return lower_around(site)
        (y,) = lower_with_number(
            replace(site, plan=op.NodePlan((scaled,), site.plan.outputs)),
            site.inputs[0],
            "QLinearAdd",
            beta,
        )
        low, high = bound_integers((0.0, 1.0), q)
        if (int(low), int(high)) == (q.dtype.qmin, q.dtype.qmax):
            return [y]
        bounds = [
            site.initializer(suffix, q_bound, q.dtype)
            for suffix, q_bound in (("low", low), ("high", high))
        ]
        clipped = site.tape.op("Clip", [y, *bounds], name=f"{site.node.name}_clip")
        clipped.type, clipped.shape = y.type, y.shape
        return [clipped]

    def kernel(self, call: op.Call) -> tuple[op.Array, ...]:
        alpha, beta = _line(call)
        scaled = _scaled(call.qparams_in(0), float(alpha), float(beta), call.qparams_out())
        if scaled is None:
            return (table_kernel(call, lambda x: np.clip(alpha * x + beta, 0, 1)),)
        y = number_kernel(
            replace(call, plan=op.NodePlan((scaled,), call.plan.outputs)), "QLinearAdd", float(beta)
        )
        low, high = bound_integers((0.0, 1.0), call.qparams_out())
        return (np.clip(y, low, high),)

    def agrees(self, call: op.Call) -> bool:
        """Whether every machine gives the same integers for alpha X + beta."""
        added = _as_sum(call)
        return added is None or Add().agrees(added)

    def agrees_with_itself(self, call: op.Call) -> bool:
        """Whether alpha X and beta may change places."""
        added = _as_sum(call)
        return added is None or Add().agrees_with_itself(added)


def _as_sum(call: op.Call) -> op.Call | None:
    """The call of Add for alpha X and beta; None: it runs around float, where there is no sum."""
    alpha, beta = _line(call)
    scaled = _scaled(call.qparams_in(0), float(alpha), float(beta), call.qparams_out())
    if scaled is None:
        return None
    _, number = as_integer(float(beta), scaled.dtype)
    return replace(call, plan=op.NodePlan((scaled, number), call.plan.outputs), attributes={})


def _line(call: op.NodeCall) -> tuple[np.float32, np.float32]:
    """(alpha, beta)."""
    alpha, beta = call.real("alpha", ALPHA), call.real("beta", BETA)
    return np.float32(alpha), np.float32(beta)


def _scaled(p: QParams, alpha: float, beta: float, q: QParams) -> QParams | None:
    """The qparams of X with alpha times their scale; None where that is no scale.

    None, too, where the sum in LSB of the result goes beyond int32, of which x86 makes the least.
    """
    scale = p.scale * np.float32(alpha)
    most = MOST_LSB * float(scale) + abs(beta)
    if not is_scale(float(scale)) or (q.dtype.bits == 8 and most / float(q.scale) >= 2**31):
        return None
    return QParams(scale, p.zero_point, p.dtype)
