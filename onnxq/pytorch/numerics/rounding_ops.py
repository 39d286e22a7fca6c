"""The torch operators that quantize: `torch.ops.onnxq.*`, each with the ONNX operator's rule.

    quantize_linear    q = saturate(rint(x / scale) + zero_point)              QuantizeLinear
    dequantize_linear  x = (q - zero_point) * scale                            DequantizeLinear
    dequantize_4bits   the same                                                of uint4 or int4
    fake_quantize      clamp(rint(x / scale), qmin - zp, qmax - zp) * scale    both

They compute in float32 on any device, as onnxq.qparams does in NumPy. torch.export, torch.compile
keep them whole: pytorch/exporting/translation.py says which ONNX nodes they become. The division is
one (torch's own kernels multiply by 1 / scale), so scale stays a tensor on the device of x: torch
divides a CUDA tensor by a number by multiplying it with the reciprocal.
"""

import torch
from torch import Tensor

from onnxq.pytorch.numerics import rounding
from onnxq.pytorch.numerics.torch_operator import torch_operator

NO_AXIS = -1  # one scale for the tensor: the operators ignore the axis


def _checked_like(x: Tensor, scale: Tensor, zero_point: Tensor, *_: int) -> Tensor:
    rounding.check(x, scale)
    return torch.empty_like(x, dtype=zero_point.dtype)


def _float_like(integers: Tensor, *_: object) -> Tensor:
    return torch.empty_like(integers, dtype=rounding.EXACT)


@torch_operator("quantize_linear", _checked_like)
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
    rounding.check(x, scale)
    limits = torch.iinfo(zero_point.dtype)
    zp = rounding.spread(zero_point, x.ndim, axis).to(rounding.EXACT)
    v = x.to(rounding.EXACT) / rounding.spread(scale, x.ndim, axis)
    # fmax gives the number where the other is NaN: the smallest integer, as in ONNX Runtime
    v = torch.fmin(torch.fmax(v, limits.min - zp), limits.max - zp)
    return v.round_().add_(zp).to(zero_point.dtype)


@torch_operator("dequantize_linear", _float_like)
def dequantize_linear(integers: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Real values: (integers - zero_point) * scale, in float32."""
    # int64: the difference of two int32 is rounded to float32 once, as ONNX Runtime does
    wide = torch.int64 if integers.dtype == torch.int32 else torch.int32
    centred = integers.to(wide) - rounding.spread(zero_point, integers.ndim, axis).to(wide)
    return centred.to(rounding.EXACT).mul_(rounding.spread(scale, integers.ndim, axis))


@torch_operator("dequantize_4bits", _float_like)
def dequantize_4bits(integers: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    """Real values as dequantize_linear has them, of integers that ONNX stores in 4 bits."""
    return dequantize_linear(integers, scale, zero_point, axis)


def _checked(x: Tensor, scale: Tensor, *_: object) -> Tensor:
    rounding.check(x, scale)
    return torch.empty_like(x)


@torch_operator("fake_quantize", _checked)
def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The real values of x after a round trip through integers in [qmin, qmax]."""
    return rounding.rounded(x, scale, zero_point, rounding.IntegerRange(qmin, qmax, axis))


# --- The operator that marks where a quantized region ends: `torch.ops.onnxq.leave_integers`.
#
#     y = x        exported as Max(x), one copy, which ONNX Runtime's optimizers leave alone
#
# Behind it a model computes in float. Without it ONNX Runtime would run the float operators between
# this end and the next QuantizeLinear in integers.
# `onnxq.qdq.tidy` removes it where nothing behind it is quantized again.


@torch_operator("leave_integers", torch.empty_like)
def leave_integers(x: Tensor) -> Tensor:
    """A copy of x: what follows it is float."""
    return x.clone()
