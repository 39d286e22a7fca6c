"""Fake quantization with the scale of amax, as QuantizeLinear rounds, differentiable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd import Function

from onnxq.pytorch.tensor_quant.functions import TINY_AMAX, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

EVERYTHING = 2.0**127  # a scale that makes every code 0


class OnnxFakeQuantFunction(Function):
    """clip(rint(x / scale), lowest, bound) * scale, with scale = amax / bound.

    Gradient: straight through where |x| <= amax, else 0.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, amax: Tensor, lowest: int, bound: int) -> Tensor:
        """The rounded x in its shape and type; computed in float32, as ONNX Runtime does."""
        ctx.save_for_backward(x, amax)
        scale = scale_of(amax, bound)
        codes = torch.clamp(torch.round(x.to(torch.float32) / scale), lowest, bound)
        return (codes * scale).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x alone."""
        x, amax = ctx.saved_tensors
        grad = grad_outputs[0]
        return torch.where(within(x, amax), grad, torch.zeros_like(grad)), None, None, None


onnx_fake_quant = cast("Callable[[Tensor, Tensor, int, int], Tensor]", OnnxFakeQuantFunction.apply)


def scale_of(amax: Tensor, bound: int) -> Tensor:
    """Amax / bound in float32; 2^127, which makes every code 0, where amax <= 2^-24."""
    amax = amax.to(torch.float32)
    # a tensor, not a number: CUDA multiplies by the reciprocal of a number
    scale = amax / amax.new_full((), bound)
    return torch.where(amax <= TINY_AMAX, torch.full_like(scale, EVERYTHING), scale)
