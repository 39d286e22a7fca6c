"""Products and sums of codes and one constant number, by QLinearMul and QLinearAdd.

The number n is one code of its own: n = (code - zero_point) * |n|, code - zero_point = 1, -1 or 0.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import QDType
from onnxq.operator import Call, NodePlan, Site
from onnxq.operators._tables import all_codes, is_tabulable
from onnxq.operators.add import Add
from onnxq.operators.mul import Mul, products_agree
from onnxq.qparams import MIN_SCALE, IntArray, QParams, per_tensor

OPERATORS = {"QLinearMul": Mul(), "QLinearAdd": Add()}


def is_scale(number: float) -> bool:
    """Whether float32 can hold the number as a scale."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(number)) and np.float32(number) >= MIN_SCALE)


def one_code(number: float, qdtype: QDType) -> tuple[IntArray, QParams]:
    """(code of rank 0, qparams) that stand for float32(number) exactly.

    Raises:
        ShapeError: the number is not finite.
    """
    code, zero_point = (int(number > 0), int(number < 0))
    scale = abs(number) if number else 1.0
    return np.array(code, qdtype.storage), per_tensor(scale, zero_point, qdtype)


def lower_with_number(
    site: Site, x: ir.Value | None, op_type: str, number: float
) -> list[ir.Value]:
    """op_type(x, number): QLinearMul or QLinearAdd; plan.inputs[0] belongs to x.

    Raises:
        UnsupportedError: codes are not all uint8 or all int8.
    """
    p = site.qparams_in(0)
    code, parameters = one_code(number, p.dtype)
    constant = site.initializer("number", code, p.dtype)
    return replace(
        site, plan=NodePlan((p, parameters), site.plan.outputs), inputs=[x, constant]
    ).qlinear(op_type, {})


def number_kernel(call: Call, op_type: str, number: float) -> IntArray:
    """The codes that `lower_with_number` gives.

    Raises:
        ShapeError: codes or qparams are missing or do not fit together.
    """
    x, p = call.codes(0), call.qparams_in(0)
    code, parameters = one_code(number, p.dtype)
    pair = NodePlan((p, parameters), (call.qparams_out(),))
    (y,) = OPERATORS[op_type].kernel(replace(call, inputs=(x, code), plan=pair, attributes={}))
    return np.asarray(y, pair.outputs[0].dtype.storage)  # type: ignore[union-attr]  # just made


def product_agrees(call: Call, number: float) -> bool:
    """Whether all machines multiply every code of x by the number alike.

    Args:
        call: plan.inputs[0] belongs to x.
        number: finite.
    """
    p, out = call.qparams_in(0), call.plan.outputs[0]
    if out is None or not is_tabulable(call.plan):
        return True  # around float
    code, parameters = one_code(number, p.dtype)
    return products_agree(all_codes(p.dtype), code.astype(np.int32), p, parameters, out)
