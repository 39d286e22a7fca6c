"""Rounding to quantized levels as tensor operations: values there, and gradients back.

    v    = x / scale
    out  = clamp(rint(v), qmin - zp, qmax - zp) * scale
    dx   = grad where rint(v) lies inside, 0 elsewhere                    straight-through
    ds   = (rint(v) - v) grad inside, the clamped limit times grad outside  LSQ, eq. 3

No operation of torch reads a scale or a zero point on the host, on any device. In main memory,
where a number can be looked at without waiting, it is: torch's kernels between tensors are slower
there than those with a number, and the gradient is one pass over x and grad in place of two.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from onnxq.errors import ShapeError

EXACT = torch.float32
_HALF = 0.5  # of an LSB: between the last integer that is inside and the first that is not


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """The integers in use, and the axis of the channels; without meaning for a scale of rank 0."""

    qmin: int
    qmax: int
    axis: int


def spread(values: Tensor, rank: int, axis: int) -> Tensor:
    """Scales or zero points, shaped to broadcast with a tensor of that rank."""
    if values.ndim == 0:
        return values
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside a tensor of rank {rank}.")
    return values.reshape([-1 if i == axis % rank else 1 for i in range(rank)])


def check(x: Tensor, scale: Tensor) -> None:
    """Guards what is quantized."""
    if x.device != scale.device:
        # torch would take a scale of rank 0 on the CPU, and multiply by its reciprocal
        raise ShapeError(
            f"x is on {x.device}, its scale on {scale.device}; move both to one device, such as "
            f"with model.to({str(x.device)!r})."
        )
    check_floats(x)


def check_floats(x: Tensor) -> None:
    """Passes what can be quantized."""
    if not x.dtype.is_floating_point:
        raise ShapeError(
            f"got a tensor of {x.dtype}, shape {list(x.shape)}; wanted floating-point values. "
            "Integers (token ids, masks) are not quantized: leave them out of the "
            "quantized "
            "region, or convert them with .float() first."
        )


@dataclass(frozen=True, slots=True)
class Numbers:
    """A scale and a zero point that lie in main memory, where reading them waits for nothing."""

    scale: float | None
    zero_point: int


def numbers_of(scale: Tensor, zero_point: Tensor) -> Numbers | None:
    """Both as numbers; None on other devices, and where channels differ in their zero point.

    Neither what torch.compile traces nor a fake tensor lies in main memory.
    """
    if torch.compiler.is_compiling() or type(zero_point) is not Tensor:
        return None
    if zero_point.device.type != "cpu" or type(scale) not in (Tensor, nn.Parameter):
        return None
    zeros = zero_point.numpy()
    if zeros.ndim == 0:
        return Numbers(scale.detach().numpy().item(), zeros.item())
    first = zeros.flat[0].item() if zeros.size else 0
    return Numbers(None, first) if (zeros == first).all() else None


def rounded(x: Tensor, scale: Tensor, zero_point: Tensor, integers: IntegerRange) -> Tensor:
    """The real values of x after a round trip through the integers; NaN stays NaN."""
    s = spread(scale, x.ndim, integers.axis)
    v = (_exact(x) / s).round_()
    numbers = numbers_of(scale, zero_point)
    if numbers is None:
        # two passes, yet four times as fast as clamp between tensors; both keep NaN
        v = _between(v, spread(zero_point, x.ndim, integers.axis).to(EXACT), integers)
    else:
        v.clamp_(integers.qmin - numbers.zero_point, integers.qmax - numbers.zero_point)
    return v.mul_(s).to(x.dtype)


def _exact(x: Tensor) -> Tensor:
    return x if x.dtype is EXACT else x.to(EXACT)


def _between(v: Tensor, zero_point: Tensor, integers: IntegerRange) -> Tensor:
    least = torch.maximum(v, integers.qmin - zero_point)
    return torch.minimum(least, integers.qmax - zero_point)


def passed_inside(
    grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, integers: IntegerRange
) -> Tensor:
    """The gradient where the integer of x lies inside, 0 elsewhere; dtype of grad."""
    numbers = numbers_of(scale, zero_point)
    s = spread(scale, x.ndim, integers.axis)
    if numbers is None:
        rounded = (_exact(x) / s).round_().add_(spread(zero_point, x.ndim, integers.axis).to(EXACT))
        return _where_between(grad, rounded, integers.qmin - _HALF, integers.qmax + _HALF)
    # quotients x / scale that are the first outside
    low = _beyond(integers.qmin - numbers.zero_point, -1)
    high = _beyond(integers.qmax - numbers.zero_point, 1)
    if numbers.scale is None:
        return _where_between(grad, _exact(x) / s, low, high)
    low, high = last_with(numbers.scale, low, -1), last_with(numbers.scale, high, 1)
    return _where_between(grad, _exact(x), low, high)  # in one pass over x and grad


@functools.lru_cache(maxsize=4096)
def _beyond(last: int, sign: int) -> float:
    """The first float32 past `last` that rint takes further; a tie goes to the even number."""
    tie = np.float32(last + sign * _HALF)
    return float(tie if last % 2 else np.nextafter(tie, np.float32(sign * np.inf)))


@functools.lru_cache(maxsize=4096)  # scales that rest are asked for at every step
def last_with(scale: float, bound: float, sign: int) -> float:
    """The float32 x nearest to 0 whose quotient x / scale, as float32, reaches the bound."""
    away, back = np.float32(sign * np.inf), np.float32(0)
    with np.errstate(all="ignore"):
        s, least = np.float32(scale), np.float32(bound)
        x = s * least
        while sign * (x / s) < sign * least:
            x = np.nextafter(x, away)
        while sign * ((nearer := np.nextafter(x, back)) / s) >= sign * least and nearer != x:
            x = nearer
    return float(x)


def _where_between(grad: Tensor, v: Tensor, low: float, high: float) -> Tensor:
    """The gradient where low < v < high, 0 elsewhere.

    In one pass; in float32, since bfloat16 does not tell 127.5 from 128.
    """
    if torch.compiler.is_compiling():
        # one loop there too; of hardtanh_backward torch expects other strides than it gives
        left_out = (v <= low) | (v >= high)
        return torch.where(left_out, 0.0, _exact(grad)).to(grad.dtype)
    passed = torch.ops.aten.hardtanh_backward.default(_exact(grad), v, low, high)
    return passed.to(grad.dtype)  # type: ignore[no-any-return]  # aten is untyped


def learned_gradients(
    grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, integers: IntegerRange
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of scale, the latter times 1 / sqrt(n qmax) (LSQ, section 2.2).

    n is the number of elements that share a scale.
    """
    s, zp = (spread(part, x.ndim, integers.axis) for part in (scale, zero_point))
    zp = zp.to(EXACT)
    v = _exact(x) / s
    inside = _where_between(grad, v + zp, integers.qmin, integers.qmax)
    # grad * (clamp(rint(v)) - v), the second term only where it was not clamped
    slope = _between(v.round(), zp, integers).mul_(grad).sub_(v.mul_(inside))
    total = slope.sum_to_size(s.shape).reshape(scale.shape)
    sharing = max(x.numel() // max(scale.numel(), 1), 1)
    return inside, total / math.sqrt(sharing * max(integers.qmax, 1))
