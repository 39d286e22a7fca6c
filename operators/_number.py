"""Products and sums of integers and one constant number, by QLinearMul and QLinearAdd.

The number n becomes one integer: n = (q - zero_point) * |n|, q - zero_point = 1, -1 or 0.
"""

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnxq.dtypes import QDType
from onnxq.operator import Call, NodePlan, Site
from onnxq.operators._tables import all_integers, is_tabulable
from onnxq.operators.add import Add
from onnxq.operators.mul import Mul, products_agree
from onnxq.qparams import MIN_SCALE, IntArray, QParams, per_tensor

OPERATORS = {"QLinearMul": Mul(), "QLinearAdd": Add()}


def is_scale(number: float) -> bool:
    """Whether float32 can hold the number as a scale."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(number)) and np.float32(number) >= MIN_SCALE)


def as_integer(number: float, qdtype: QDType) -> tuple[IntArray, QParams]:
    """(integer of rank 0, qparams) that stand for float32(number) exactly."""
    integer, zero_point = (int(number > 0), int(number < 0))
    scale = abs(number) if number else 1.0
    return np.array(integer, qdtype.storage), per_tensor(scale, zero_point, qdtype)


def lower_with_number(
    site: Site, x: ir.Value | None, op_type: str, number: float
) -> list[ir.Value]:
    """op_type(x, number): QLinearMul or QLinearAdd; plan.inputs[0] belongs to x."""
    p = site.qparams_in(0)
    integer, parameters = as_integer(number, p.dtype)
    constant = site.initializer("number", integer, p.dtype)
    return replace(
        site, plan=NodePlan((p, parameters), site.plan.outputs), inputs=[x, constant]
    ).qlinear(op_type, {})


def number_kernel(call: Call, op_type: str, number: float) -> IntArray:
    """The integers that `lower_with_number` gives."""
    x, p = call.integers(0), call.qparams_in(0)
    integer, parameters = as_integer(number, p.dtype)
    pair = NodePlan((p, parameters), (call.qparams_out(),))
    (y,) = OPERATORS[op_type].kernel(replace(call, inputs=(x, integer), plan=pair, attributes={}))
    return np.asarray(y, pair.outputs[0].dtype.storage)  # type: ignore[union-attr]  # just made


def product_agrees(call: Call, number: float) -> bool:
    """Whether all machines multiply every integer of x by the number alike."""
    p, out = call.qparams_in(0), call.plan.outputs[0]
    if out is None or not is_tabulable(call.plan):
        return True  # around float
    integer, parameters = as_integer(number, p.dtype)
    return products_agree(all_integers(p.dtype), integer.astype(np.int32), p, parameters, out)
