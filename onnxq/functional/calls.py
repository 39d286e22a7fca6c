"""How a function calls an operator's kernel: QTensors in, a QTensor out."""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from onnxq import catalog
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import Array, AttributeValue, Call, NodePlan
from onnxq.qparams import PerTensor, QParams
from onnxq.qtensor.checked import one_number, wholes
from onnxq.qtensor.tensor import QTensor, check_tensor


def call(
    op_type: str,
    inputs: Sequence[QTensor | Array | None],
    output: QParams,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> QTensor:
    """The result of the kernel of an ONNX operator."""
    operator = catalog.find(op_type)
    if operator is None or not operator.has_kernel():
        raise UnsupportedError(
            f"{op_type}: onnxq has no integer kernel for it. Compute it on dequantize()."
        )
    plan = NodePlan(tuple(x.qparams if isinstance(x, QTensor) else None for x in inputs), (output,))
    arrays = [x.int_repr() if isinstance(x, QTensor) else x for x in inputs]
    run = Call(op_type, arrays, plan, attributes=attributes or {})
    return QTensor(np.asarray(operator.kernel(run)[0]), output)


def check_input(op: str, x: object, name: str = "input") -> QTensor:
    """x, if it is a per-tensor quantized tensor."""
    x = check_tensor(op, x, name)
    if x.qparams.granularity != PerTensor():
        raise UnsupportedError(
            f"{op}: {name} is quantized with {x.qparams.granularity}; wanted per-tensor. "
            "Quantize its dequantize() again."
        )
    return x


def result_qparams(like: QTensor, scale: float | None, zero_point: int | None) -> QParams:
    """Per-tensor qparams of the operand's dtype; None: the operand's own scale or zero point."""
    return QParams(
        like.qparams.scale if scale is None else one_number("result", "scale", scale),
        like.qparams.zero_point
        if zero_point is None
        else one_number("result", "zero_point", zero_point),
        like.dtype,
    )


def per_axis(op: str, name: str, value: int | Sequence[int], rank: int) -> list[int]:
    """One number per spatial axis; a single one stands for all."""
    found = list(wholes(op, name, value))
    if len(found) == 1:
        return found * rank
    if len(found) != rank:
        raise ShapeError(f"{op}: {name} is {value}; wanted one number, or {rank}.")
    return found


def real(op: str, name: str, value: object) -> float:
    """The value as a float. Raises ShapeError where it is no number, or NaN."""
    number = float(one_number(op, name, cast("npt.ArrayLike", value)))
    if math.isnan(number):
        raise ShapeError(f"{op}: {name} is NaN; wanted a number.")
    return number


def check_rank(op: str, x: QTensor, ranks: Sequence[int], axes: str) -> None:
    """Raises ShapeError where x has another rank."""
    if x.ndim not in ranks:
        raise ShapeError(f"{op}: input has shape {x.shape}; wanted {axes}.")
