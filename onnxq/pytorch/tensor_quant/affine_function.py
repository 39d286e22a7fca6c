"""fake_affine_tensor_quant: values at quantized levels between min and max, for one tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd import Function

from onnxq.pytorch.tensor_quant.descriptor_arguments import as_num_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class FakeAffineTensorQuantFunction(Function):
    """Values (q + zero) * step, with step = (max_range - min_range) / (2^num_bits - 1).

    zero = rint(min_range / step) + 2^(num_bits - 1);  q = rint(x / step) - zero, clamped to
    num_bits signed. Gradient of inputs: 1 where min_range <= x <= max_range, else 0.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, min_range: Tensor, max_range: Tensor, num_bits: int = 8
    ) -> Tensor:
        """The rounded values, of the shape and type of inputs.

        Args:
            ctx: keeps what backward needs.
            inputs: floats, any shape.
            min_range: one float, below max_range.
            max_range: one float.
            num_bits: 2 to 16.
        Raises:
            QuantTypeError: num_bits is no int.
            QuantValueError: num_bits out of range.
        """
        ctx.save_for_backward(inputs, min_range, max_range)
        half = 1 << (as_num_bits(num_bits) - 1)
        step = (max_range - min_range) / (2 * half - 1)
        zero = torch.round(min_range / step) + half
        integers = torch.clamp(torch.round(inputs / step) - zero, -half, half - 1)
        return (integers + zero) * step

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Straight through between min and max, zero elsewhere."""
        inputs, low, high = ctx.saved_tensors
        inside = (inputs >= low) & (inputs <= high)
        return torch.where(inside, grad_outputs[0], torch.zeros_like(inputs)), None, None, None


fake_affine_tensor_quant = cast("Callable[..., Tensor]", FakeAffineTensorQuantFunction.apply)
