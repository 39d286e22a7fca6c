"""How a function calls an operator's kernel: QTensors in, a QTensor out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq import catalog
from onnxq.errors import ShapeError, UnsupportedError
from onnxq.operator import NodePlan
from onnxq.qparams import PerTensor, per_tensor
from onnxq.qtensor.tensor import QTensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnxq.operator import Array, AttributeValue
    from onnxq.qparams import QParams


def call(
    op_type: str,
    inputs: Sequence[QTensor | Array | None],
    output: QParams,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> QTensor:
    """The result of the kernel of an ONNX operator.

    Args:
        op_type: of the default domain.
        inputs: one per slot; a QTensor where it is quantized.
        output: qparams of the result.
        attributes: of the ONNX node.
    Raises:
        ShapeError: the kernel refuses shapes or dtypes.
        UnsupportedError: the operator has no kernel, or none for these types.
    """
    operator = catalog.find(op_type)
    if operator is None or not operator.has_kernel():
        raise UnsupportedError(
            f"{op_type}: onnxq has no integer kernel for it. Compute it on dequantize()."
        )
    plan = NodePlan(tuple(x.qparams if isinstance(x, QTensor) else None for x in inputs), (output,))
    arrays = [x.int_repr() if isinstance(x, QTensor) else x for x in inputs]
    return QTensor(np.asarray(operator.kernel(arrays, plan, attributes or {})[0]), output)


def check_input(op: str, x: object, name: str = "input") -> QTensor:
    """x, if it is a per-tensor quantized tensor.

    Raises:
        ShapeError: no QTensor.
        UnsupportedError: one scale per channel or block: only weights may have these.
    """
    if not isinstance(x, QTensor):
        raise ShapeError(
            f"{op}: {name} is a {type(x).__name__}; wanted a QTensor. "
            "Make one with onnxq.qtensor.quantize_per_tensor."
        )
    if x.qparams.granularity != PerTensor():
        raise UnsupportedError(
            f"{op}: {name} is quantized with {x.qparams.granularity}; wanted per-tensor. "
            "Quantize its dequantize() again."
        )
    return x


def result_qparams(like: QTensor, scale: float | None, zero_point: int | None) -> QParams:
    """Per-tensor qparams of the operand's dtype; None: the operand's own scale or zero point.

    Raises:
        ShapeError: a scale that is not positive, a zero point outside the type.
    """
    return per_tensor(
        like.q_scale() if scale is None else scale,
        like.q_zero_point() if zero_point is None else zero_point,
        like.dtype,
    )


def per_axis(op: str, name: str, value: int | Sequence[int], rank: int) -> list[int]:
    """One number per spatial axis; a single one stands for all.

    Raises:
        ShapeError: another count.
    """
    if isinstance(value, int | np.integer):
        return [int(value)] * rank
    numbers = [int(n) for n in value]
    if len(numbers) == 1:
        return numbers * rank
    if len(numbers) != rank:
        raise ShapeError(f"{op}: {name} is {value}; wanted one number, or {rank}.")
    return numbers


def check_rank(op: str, x: QTensor, ranks: Sequence[int], axes: str) -> None:
    """Raises ShapeError where x has another rank."""
    if x.ndim not in ranks:
        raise ShapeError(f"{op}: input has shape {x.shape}; wanted {axes}.")
