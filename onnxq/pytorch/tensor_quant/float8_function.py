"""scaled_e4m3: values as 8-bit floats of 4 exponent and 3 mantissa bits hold them.

For looking at what float8 would do to a model: ONNX Runtime's CPU has no such arithmetic, and no
file that onnxq writes has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch.autograd import Function

from onnxq.pytorch.tensor_quant.functions import within
from onnxq.pytorch.tensor_quant.quant_errors import QuantValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

LARGEST = 448.0  # of float8_e4m3fn, which has no infinity
_BITS = (4, 3)


class ScaledE4M3Function(Function):
    """Values float8(x * scale) / scale, scale = 448 / amax; the gradient of a clamp to amax."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        amax: Tensor | None = None,
        E: int = 4,  # noqa: N803  # NVIDIA's names
        M: int = 3,  # noqa: N803  # the same
    ) -> Tensor:
        """The rounded values, of the shape and type of inputs.

        Args:
            ctx: keeps what backward needs.
            inputs: floats, any shape.
            amax: floats >= 0 that broadcast to inputs; None: scale 1.
            E: bits of the exponent; 4.
            M: bits of the mantissa; 3.
        Raises:
            QuantValueError: other bits.
        """
        if (E, M) != _BITS:
            raise QuantValueError(f"E={E}, M={M}: there is E4M3 alone; leave both out.")
        top = torch.tensor(LARGEST) if amax is None else amax
        ctx.save_for_backward(inputs, top)
        wide = inputs.to(torch.float32)
        largest = top.to(wide.device, torch.float32)
        scale = torch.where(largest > 0, LARGEST / largest, torch.ones_like(largest))
        integers = torch.clamp(wide * scale, -LARGEST, LARGEST).to(torch.float8_e4m3fn)
        return (integers.to(torch.float32) / scale).to(inputs.dtype)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Straight through where -amax <= input <= amax, zero elsewhere."""
        inputs, top = ctx.saved_tensors
        grad = grad_outputs[0]
        inside = within(inputs, top.to(inputs.device))
        return torch.where(inside, grad, torch.zeros_like(grad)), None, None, None


scaled_e4m3 = cast("Callable[..., Tensor]", ScaledE4M3Function.apply)
