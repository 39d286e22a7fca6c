"""The torch operators that quantize: `torch.ops.onnxq.*`, each with the ONNX operator's rule.

    quantize_linear    q = saturate(rint(x / scale) + zero_point)              QuantizeLinear
    dequantize_linear  x = (q - zero_point) * scale                            DequantizeLinear
    dequantize_4bits   the same                                                of uint4 or int4
    fake_quantize      clamp(rint(x / scale), qmin - zp, qmax - zp) * scale    both, differentiable

They compute in float32 on any device, as onnxq.qparams does in NumPy. torch.export, torch.compile
keep them whole: pytorch/exporting/translation.py says which ONNX nodes they become. The division is
one (torch's own kernels multiply by 1 / scale), so scale stays a tensor on the device of x: torch
divides a CUDA tensor by a number by multiplying it with the reciprocal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxq.pytorch.numerics.rounding import (
    EXACT,
    IntegerRange,
    check,
    learned_gradients,
    numbers_of,
    passed_inside,
    rounded,
    spread,
)

NO_AXIS = -1  # one scale for the tensor: the operators ignore the axis


@torch.library.custom_op("onnxq::quantize_linear", mutates_args=())
def quantize_linear(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Integers: saturate(rint(x / scale) + zero_point), NaN to the smallest integer.

    Args:
        x: floating point, any shape; computed in float32.
        scale: float32, shape () or (channels,).
        zero_point: same shape; its dtype is that of the integers.
        axis: axis of the channels in x; without meaning for a scale of rank 0.
    Returns:
        zero_point.dtype, shape of x.
    """
    check(x, scale)
    limits = torch.iinfo(zero_point.dtype)
    zp = spread(zero_point, x.ndim, axis).to(EXACT)
    v = x.to(EXACT) / spread(scale, x.ndim, axis)
    # fmax gives the number where the other is NaN: the smallest integer, as in ONNX Runtime
    v = torch.fmin(torch.fmax(v, limits.min - zp), limits.max - zp)
    return v.round_().add_(zp).to(zero_point.dtype)


@quantize_linear.register_fake
def _(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:  # noqa: ARG001  # the operator's signature
    check(x, scale)
    return torch.empty_like(x, dtype=zero_point.dtype)


@torch.library.custom_op("onnxq::dequantize_linear", mutates_args=())
def dequantize_linear(integers: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Real values: (integers - zero_point) * scale, in float32.

    Args:
        integers: integers, any shape.
        scale: float32, shape () or (channels,).
        zero_point: of the dtype of integers, same shape as scale.
        axis: axis of the channels in integers; without meaning for a scale of rank 0.
    """
    # int64: the difference of two int32 is rounded to float32 once, as ONNX Runtime does
    wide = torch.int64 if integers.dtype == torch.int32 else torch.int32
    centred = integers.to(wide) - spread(zero_point, integers.ndim, axis).to(wide)
    return centred.to(EXACT).mul_(spread(scale, integers.ndim, axis))


@dequantize_linear.register_fake
def _(integers: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:  # noqa: ARG001  # the operator's signature
    return torch.empty_like(integers, dtype=EXACT)


@torch.library.custom_op("onnxq::dequantize_4bits", mutates_args=())
def dequantize_4bits(integers: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Real values as dequantize_linear has them, of integers that ONNX stores in 4 bits.

    Args:
        integers: int8 in [-8, 7] or uint8 in [0, 15]; torch computes with no smaller type.
        scale: float32, shape () or (channels,).
        zero_point: of the dtype of integers, same shape as scale.
        axis: axis of the channels in integers.
    """
    real: Tensor = dequantize_linear(integers, scale, zero_point, axis)
    return real


@dequantize_4bits.register_fake
def _(integers: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:  # noqa: ARG001  # the operator's signature
    return torch.empty_like(integers, dtype=EXACT)


@torch.library.custom_op("onnxq::fake_quantize", mutates_args=())
def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The real values of x after a round trip through integers in [qmin, qmax].

    Gradient: 1 where rint(x / scale) + zero_point lies in [qmin, qmax], 0 elsewhere; none for scale
    and zero_point.

    Args:
        x: floating point, any shape; computed in float32. NaN stays NaN.
        scale: float32, shape () or (channels,).
        zero_point: integers, same shape.
        qmin: smallest integer.
        qmax: largest integer.
        axis: axis of the channels in x; without meaning for a scale of rank 0.
    Returns:
        dtype and shape of x.
    """
    numbers = numbers_of(scale, zero_point)
    return rounded(x, scale, zero_point, IntegerRange(qmin, qmax, axis), numbers)


@torch.library.custom_op("onnxq::learned_fake_quantize", mutates_args=())
def learned_fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The result of fake_quantize, with LSQ's gradient for scale (Esser et al. 2020, eq. 3 and 5).

    d out / d scale = rint(v) - v where v = x / scale lies inside, qmin - zp below, qmax - zp
    above;   times 1 / sqrt(n qmax), n the number of elements that share the scale
    """
    numbers = numbers_of(scale, zero_point)
    return rounded(x, scale, zero_point, IntegerRange(qmin, qmax, axis), numbers)


def _fake(x: Tensor, scale: Tensor, *_: Any) -> Tensor:
    check(x, scale)
    return torch.empty_like(x)


fake_quantize.register_fake(_fake)
learned_fake_quantize.register_fake(_fake)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001  # the operator's signature
    x, scale, zero_point, *numbers = inputs
    # copies: an observer that sees a second tensor in this step writes new ones in their place
    ctx.save_for_backward(x, scale.clone(), zero_point.clone())
    ctx.numbers = tuple(numbers)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, zero_point = ctx.saved_tensors
    passed = passed_inside(grad, x, scale, zero_point, IntegerRange(*ctx.numbers))
    return passed, None, None, None, None, None


def _learned_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, zero_point = ctx.saved_tensors
    learned = learned_gradients(grad, x, scale, zero_point, IntegerRange(*ctx.numbers))
    return *learned, None, None, None, None


fake_quantize.register_autograd(_backward, setup_context=_keep)
learned_fake_quantize.register_autograd(_learned_backward, setup_context=_keep)

# --- The operator that marks where a quantized region ends: `torch.ops.onnxq.leave_integers`.
#
#     y = x        exported as Max(x), one copy, which ONNX Runtime's optimizers leave alone
#
# Behind it a model computes in float. Without it ONNX Runtime would run the float operators between
# this end and the next QuantizeLinear in integers.
# `onnxq.qdq.tidy` removes it where nothing behind it is quantized again.


@torch.library.custom_op("onnxq::leave_integers", mutates_args=())
def leave_integers(x: Tensor) -> Tensor:
    """A copy of x: what follows it is float."""
    return x.clone()


@leave_integers.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)
