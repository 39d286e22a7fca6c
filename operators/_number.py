"""Products and sums of codes and one constant number, by QLinearMul and QLinearAdd.

The number n is one code of its own: n = (code - zero_point) * |n|, code - zero_point = 1, -1 or 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import NodePlan
from onnxq.operators._check import codes, qparams_in, qparams_out
from onnxq.operators._emit import initializer, qlinear
from onnxq.operators.add import Add
from onnxq.operators.mul import Mul
from onnxq.qparams import MIN_SCALE, QParams, per_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from onnx_ir.tape import Tape

    from onnxq.dtypes import QDType
    from onnxq.operator import Array
    from onnxq.qparams import IntArray

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
    tape: Tape,
    node: ir.Node,
    plan: NodePlan,
    x: ir.Value | None,
    op_type: str,
    number: float,
) -> list[ir.Value]:
    """op_type(x, number): QLinearMul or QLinearAdd; plan.inputs[0] belongs to x.

    Raises:
        UnsupportedError: codes are not all uint8 or all int8.
    """
    p = qparams_in(node.op_type, plan, 0)
    code, parameters = one_code(number, p.dtype)
    constant = initializer(tape, node, "number", code, p.dtype)
    return qlinear(tape, node, NodePlan((p, parameters), plan.outputs), [x, constant], op_type, {})


def number_kernel(
    op: str,
    inputs: Sequence[Array | None],
    plan: NodePlan,
    op_type: str,
    number: float,
) -> IntArray:
    """The codes that `lower_with_number` gives.

    Raises:
        ShapeError: codes or qparams are missing or do not fit together.
    """
    x, p = codes(op, inputs, plan, 0), qparams_in(op, plan, 0)
    code, parameters = one_code(number, p.dtype)
    pair = NodePlan((p, parameters), (qparams_out(op, plan),))
    (y,) = OPERATORS[op_type].kernel((x, code), pair, {})
    return np.asarray(y, pair.outputs[0].dtype.storage)  # type: ignore[union-attr]  # just made
