"""The torch operators that quantize: `torch.ops.onnxq.*`, each with the ONNX operator's rule.

    quantize_linear    q = saturate(rint(x / scale) + zero_point)              QuantizeLinear
    dequantize_linear  x = (q - zero_point) * scale                            DequantizeLinear
    fake_quantize      clamp(rint(x / scale), qmin - zp, qmax - zp) * scale    both, differentiable

They compute in float32 on any device, as onnxq.qparams does in NumPy. torch.export, torch.compile
keep them whole: pytorch/exporting/translation.py says which ONNX nodes they become. The division is
one (torch's own kernels multiply by 1 / scale), so scale stays a tensor on the device of x: torch
divides a CUDA tensor by a number by multiplying it with the reciprocal.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.errors import ShapeError

NO_AXIS = -1  # one scale for the tensor: the operators ignore the axis
_EXACT = torch.float32
_HALF = 0.5  # a step: between the last code that is inside and the first that is not


def _spread(values: Tensor, rank: int, axis: int) -> Tensor:
    """Scales or zero points, shaped to broadcast with a tensor of that rank."""
    if values.ndim == 0:
        return values
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside a tensor of rank {rank}.")
    return values.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def _check(x: Tensor, scale: Tensor) -> None:
    """Guards what is quantized.

    Raises:
        ShapeError: x is not floating point, or on another device than scale.
    """
    if x.device != scale.device:
        # torch would take a scale of rank 0 on the CPU, and multiply by its reciprocal
        raise ShapeError(
            f"x is on {x.device}, its scale on {scale.device}; move both to one device, such as "
            f"with model.to({str(x.device)!r})."
        )
    check_floats(x)


def check_floats(x: Tensor) -> None:
    """Passes what can be quantized.

    Raises:
        ShapeError: x is not floating point.
    """
    if not x.dtype.is_floating_point:
        raise ShapeError(
            f"got a tensor of {x.dtype}, shape {list(x.shape)}; wanted floating-point values. "
            "Integers (token ids, masks, codes) are not quantized: leave them out of the quantized "
            "region, or convert them with .float() first."
        )


@torch.library.custom_op("onnxq::quantize_linear", mutates_args=())
def quantize_linear(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Codes: saturate(rint(x / scale) + zero_point), NaN to the smallest code.

    Args:
        x: floating point, any shape; computed in float32.
        scale: float32, shape () or (channels,).
        zero_point: same shape; its dtype is that of the codes.
        axis: axis of the channels in x; without meaning for a scale of rank 0.

    Returns:
        zero_point.dtype, shape of x.
    """
    _check(x, scale)
    limits = torch.iinfo(zero_point.dtype)
    zp = _spread(zero_point, x.ndim, axis).to(_EXACT)
    v = x.to(_EXACT) / _spread(scale, x.ndim, axis)
    # fmax gives the number where the other is NaN: the smallest code, as in ONNX Runtime
    v = torch.fmin(torch.fmax(v, limits.min - zp), limits.max - zp)
    return v.round_().add_(zp).to(zero_point.dtype)


@quantize_linear.register_fake
def _(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:  # noqa: ARG001
    _check(x, scale)
    return torch.empty_like(x, dtype=zero_point.dtype)


@torch.library.custom_op("onnxq::dequantize_linear", mutates_args=())
def dequantize_linear(codes: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Real values: (codes - zero_point) * scale, in float32.

    Args:
        codes: integers, any shape.
        scale: float32, shape () or (channels,).
        zero_point: of the dtype of codes, same shape as scale.
        axis: axis of the channels in codes; without meaning for a scale of rank 0.
    """
    # int64: the difference of two int32 is rounded to float32 once, as ONNX Runtime does
    wide = torch.int64 if codes.dtype == torch.int32 else torch.int32
    centred = codes.to(wide) - _spread(zero_point, codes.ndim, axis).to(wide)
    return centred.to(_EXACT).mul_(_spread(scale, codes.ndim, axis))


@dequantize_linear.register_fake
def _(codes: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:  # noqa: ARG001
    return torch.empty_like(codes, dtype=_EXACT)


@torch.library.custom_op("onnxq::fake_quantize", mutates_args=())
def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The real values of x after a round trip through codes in [qmin, qmax].

    Gradient: 1 where rint(x / scale) + zero_point lies in [qmin, qmax], 0 elsewhere; none for scale
    and zero_point.

    Args:
        x: floating point, any shape; computed in float32. NaN stays NaN.
        scale: float32, shape () or (channels,).
        zero_point: integers, same shape.
        qmin: smallest code.
        qmax: largest code.
        axis: axis of the channels in x; without meaning for a scale of rank 0.

    Returns:
        dtype and shape of x.

    Raises:
        ShapeError: x is not floating point, or on another device than scale; it has no such axis.
    """
    return _fake_quantized(x, scale, zero_point, qmin, qmax, axis)


@torch.library.custom_op("onnxq::learned_fake_quantize", mutates_args=())
def learned_fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The result of fake_quantize, with LSQ's gradient for scale (Esser et al. 2020, eq. 3 and 5).

    d out / d scale = rint(v) - v where v = x / scale lies inside, qmin - zp below, qmax - zp
    above;   times 1 / sqrt(n qmax), n the number of elements that share the scale
    """
    return _fake_quantized(x, scale, zero_point, qmin, qmax, axis)


def _fake_quantized(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    _check(x, scale)
    s = _spread(scale, x.ndim, axis)
    v = (x.to(_EXACT) / s).round_()
    number = _number(zero_point)
    if number is None:
        zp = _spread(zero_point, x.ndim, axis).to(_EXACT)
        # two passes, yet four times as fast as clamp between tensors; both keep NaN
        torch.maximum(v, qmin - zp, out=v)
        torch.minimum(v, qmax - zp, out=v)
    else:
        v.clamp_(qmin - number, qmax - number)
    return v.mul_(s).to(x.dtype)


def _number(zero_point: Tensor) -> int | None:
    """The zero point, where there is one and reading it does not wait for a device."""
    return int(zero_point) if zero_point.ndim == 0 and zero_point.device.type == "cpu" else None


def _fake(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor,  # noqa: ARG001
    qmin: int,  # noqa: ARG001
    qmax: int,  # noqa: ARG001
    axis: int,  # noqa: ARG001
) -> Tensor:
    _check(x, scale)
    return torch.empty_like(x)


fake_quantize.register_fake(_fake)
learned_fake_quantize.register_fake(_fake)


@torch.library.custom_op("onnxq::fake_quantize_backward", mutates_args=())
def _pass_inside(
    grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The gradient where the code of x lies in [qmin, qmax], 0 elsewhere."""
    v = x.to(_EXACT) / _spread(scale, x.ndim, axis)
    number = _number(zero_point)
    if number is not None:
        low, high = _beyond(qmin - number, -1), _beyond(qmax - number, 1)
        return _where_between(grad, v, low, high)
    codes = v.round_().add_(_spread(zero_point, x.ndim, axis).to(_EXACT))
    return _where_between(grad, codes, qmin - _HALF, qmax + _HALF)


def _beyond(last: int, sign: int) -> float:
    """The first float32 past `last` that rint takes further; a tie goes to the even number."""
    tie = np.float32(last + sign * _HALF)
    return float(tie if last % 2 else np.nextafter(tie, np.float32(sign * np.inf)))


def _where_between(grad: Tensor, v: Tensor, low: float, high: float) -> Tensor:
    """The gradient where low < v < high, 0 elsewhere.

    In one pass; in float32, since bfloat16 does not tell 127.5 from 128.
    """
    passed = torch.ops.aten.hardtanh_backward(grad.to(_EXACT), v, low, high)
    return passed.to(grad.dtype)  # type: ignore[no-any-return]  # aten is untyped


@_pass_inside.register_fake
def _(
    grad: Tensor,
    x: Tensor,  # noqa: ARG001
    scale: Tensor,  # noqa: ARG001
    zero_point: Tensor,  # noqa: ARG001
    qmin: int,  # noqa: ARG001
    qmax: int,  # noqa: ARG001
    axis: int,  # noqa: ARG001
) -> Tensor:
    return torch.empty_like(grad)


@torch.library.custom_op("onnxq::learned_fake_quantize_backward", mutates_args=())
def _learn(
    grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of scale."""
    s, zp = _spread(scale, x.ndim, axis), _spread(zero_point, x.ndim, axis).to(_EXACT)
    v = x.to(_EXACT) / s
    rounded = v.round()
    inside = _where_between(grad, v + zp, qmin, qmax)
    torch.maximum(rounded, qmin - zp, out=rounded)
    torch.minimum(rounded, qmax - zp, out=rounded)
    # grad * (clamp(rint(v)) - v), the second term only where it was not clamped
    slope = rounded.mul_(grad).sub_(v.mul_(inside))
    total = slope.sum_to_size(s.shape).reshape(scale.shape)
    sharing = max(x.numel() // max(scale.numel(), 1), 1)
    return inside, total / math.sqrt(sharing * max(qmax, 1))


@_learn.register_fake
def _(
    grad: Tensor,
    x: Tensor,  # noqa: ARG001
    scale: Tensor,
    zero_point: Tensor,  # noqa: ARG001
    qmin: int,  # noqa: ARG001
    qmax: int,  # noqa: ARG001
    axis: int,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(grad), torch.empty_like(scale)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    x, scale, zero_point, *numbers = inputs
    # copies: an observer that sees a second tensor in this step writes new ones in their place
    ctx.save_for_backward(x, scale.clone(), zero_point.clone())
    ctx.numbers = tuple(numbers)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _pass_inside(grad, *ctx.saved_tensors, *ctx.numbers), None, None, None, None, None


def _learned_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *_learn(grad, *ctx.saved_tensors, *ctx.numbers), None, None, None, None


fake_quantize.register_autograd(_backward, setup_context=_keep)
learned_fake_quantize.register_autograd(_learned_backward, setup_context=_keep)
