"""Fake quantization with gradients, in the form that is quickest where it runs.

    torch.export     torch.ops.onnxq.fake_quantize, whole: QuantizeLinear and DequantizeLinear
    torch.compile    tensor operations, which inductor fuses into one loop there and one back
    eager            the same behind one autograd node: a torch.library operator costs 100 us a
                     step in dispatch alone, this 30 (benchmarks/training_step.py)

All three give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from onnxq.pytorch.numerics import rounding_ops
from onnxq.pytorch.numerics.rounding import (
    IntegerRange,
    check,
    learned_gradients,
    numbers_of,
    passed_between,
    passed_inside,
    rounded,
)


def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The values and the gradient of rounding_ops.fake_quantize."""
    if torch.compiler.is_exporting():
        whole: Tensor = rounding_ops.fake_quantize(x, scale, zero_point, qmin, qmax, axis)
        return whole
    check(x, scale)
    made: Tensor = _Passing.apply(  # type: ignore[no-untyped-call]  # torch's
        x, scale, zero_point, IntegerRange(qmin, qmax, axis)
    )
    return made


def learned_fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, qmin: int, qmax: int, axis: int
) -> Tensor:
    """The values and the gradients of rounding_ops.learned_fake_quantize."""
    if torch.compiler.is_exporting():
        whole: Tensor = rounding_ops.learned_fake_quantize(x, scale, zero_point, qmin, qmax, axis)
        return whole
    check(x, scale)
    made: Tensor = _Learning.apply(  # type: ignore[no-untyped-call]  # torch's
        x, scale, zero_point, IntegerRange(qmin, qmax, axis)
    )
    return made


class _Passing(torch.autograd.Function):
    """A gradient for x alone."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, integers: IntegerRange
    ) -> Tensor:
        ctx.integers, ctx.numbers = integers, numbers_of(scale, zero_point)
        if ctx.numbers is not None and ctx.numbers.scale is not None:
            ctx.save_for_backward(x)
        else:
            _keep(ctx, x, scale, zero_point)
        return rounded(x, scale, zero_point, integers, ctx.numbers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.numbers is not None and ctx.numbers.scale is not None:
            (x,) = ctx.saved_tensors
            passed = passed_between(grad, x, ctx.numbers, ctx.integers)
        else:
            x, scale, zero_point = ctx.saved_tensors
            passed = passed_inside(grad, x, scale, zero_point, ctx.integers)
        return passed, None, None, None


class _Learning(torch.autograd.Function):
    """A gradient for x and for scale."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, integers: IntegerRange
    ) -> Tensor:
        ctx.integers = integers
        _keep(ctx, x, scale, zero_point)
        return rounded(x, scale, zero_point, integers, numbers_of(scale, zero_point))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, zero_point = ctx.saved_tensors
        return *learned_gradients(grad, x, scale, zero_point, ctx.integers), None, None


def _keep(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor) -> None:
    # copies: an observer that sees a second tensor in this step writes new ones in their place
    ctx.save_for_backward(x, scale.detach().clone(), zero_point.clone())
