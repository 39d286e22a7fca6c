"""tensor_quant and fake_tensor_quant: quantization whose scale is said by amax, with gradients.

integers, scale = tensor_quant(x, amax, 8, False, True)      # x is about integers / scale
y = fake_tensor_quant(x, amax)                            # integers / scale, as float

The documented formula, which multiplies: q = clip(rint(x * (bound / amax))). ONNX divides,
rint(x / (amax / bound)); the two differ by one LSB, where x lies within rounding of a tie. What is
trained to be deployed uses TensorQuantizer, which computes as ONNX does.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function

from onnxq.pytorch.arguments.bound_inputs import HALVES
from onnxq.pytorch.tensor_quant.descriptor import (
    QuantTypeError,
    QuantValueError,
    as_num_bits,
    max_bound,
)

TINY_AMAX = 2.0**-24  # half of float16's smallest number: an amax up to it makes every integer 0
_FLOATS = (*HALVES, torch.float32, torch.float64)
_OUTPUTS = (torch.int32, torch.float32)


class StraightThrough(Function):
    """A function of a tensor, its amax and numbers; forward saves the tensor and its amax."""

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Straight through where -amax <= input <= amax, zero elsewhere."""
        inputs, amax = ctx.saved_tensors
        # in float16, amax itself would be rounded
        wide = inputs.dtype if inputs.dtype == torch.float64 else torch.float32
        inside = inputs.to(wide).abs() <= amax.to(inputs.device, wide)
        grad = torch.where(inside, grad_outputs[0], torch.zeros_like(grad_outputs[0]))
        return grad, *[None] * (len(ctx.needs_input_grad) - 1)


class TensorQuantFunction(StraightThrough):
    """Integers of a tensor, and the scale that divides them back.

        integers = clip(rint(inputs * scale), lowest, bound),   scale = bound / amax

    bound = 2^(num_bits-1) - 1, lowest = -bound, or -bound - 1 without narrow_range; unsigned: bound
    = 2^num_bits - 1, lowest = 0. Where amax <= 2^-24 the integers are 0 and scale is 1. Gradient of
    inputs: that of integers where |inputs| <= amax, else 0; of amax: none.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        amax: Tensor,
        num_bits: int = 8,
        unsigned: bool = False,
        narrow_range: bool = True,
        output_dtype: torch.dtype | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(outputs, scale).

        Args:
            ctx: keeps what backward needs.
            inputs: float32, float64, float16 or bfloat16, any shape; the last two are computed in
                float32.
            amax: floats >= 0 that broadcast to the shape of inputs: one for the tensor, or
                (channels, 1, 1, 1) for axis 0 of four.
            num_bits: 2 to 16.
            unsigned: integers from 0 on; inputs must not be negative.
            narrow_range: leave the integer -bound - 1 out.
            output_dtype: torch.int32 or torch.float32 for outputs; None: that of inputs.
        Returns:
            Integers, of the shape of inputs; scale, of the shape of amax and the type of inputs.
        Raises:
            QuantTypeError: a TypeError; tensors of integers, negative inputs if unsigned, another
                output_dtype.
            QuantValueError: a ValueError; amax negative, not finite or of a shape that does not
                broadcast to inputs; num_bits out of range; a scale that float16 does not hold.
        """
        if output_dtype not in (None, *_OUTPUTS):
            raise QuantTypeError(
                f"output_dtype: got {output_dtype}; wanted torch.int32 or torch.float32."
            )
        integers, scale = _integers(inputs, amax, num_bits, unsigned, narrow_range)
        if inputs.dtype == torch.float16 and bool(scale.max() > torch.finfo(torch.float16).max):
            raise QuantValueError(
                f"scale is too large for FP16: {float(scale.max()):.6g}, with amax "
                f"{float(amax.min()):.6g}; pass inputs in float32."
            )
        ctx.save_for_backward(inputs, amax)
        outputs = integers.to(output_dtype or inputs.dtype)
        if outputs.dtype == torch.int32:
            ctx.mark_non_differentiable(outputs)
        return outputs, scale.to(inputs.dtype)


class FakeTensorQuantFunction(StraightThrough):
    """Fake-quantized values: integers / scale of TensorQuantFunction, with the same gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        amax: Tensor,
        num_bits: int = 8,
        unsigned: bool = False,
        narrow_range: bool = True,
    ) -> Tensor:
        """Outputs of the shape and type of inputs; arguments and errors: TensorQuantFunction's."""
        integers, scale = _integers(inputs, amax, num_bits, unsigned, narrow_range)
        ctx.save_for_backward(inputs, amax)
        return (integers / scale).to(inputs.dtype)


tensor_quant = cast("Callable[..., tuple[Tensor, Tensor]]", TensorQuantFunction.apply)
fake_tensor_quant = cast("Callable[..., Tensor]", FakeTensorQuantFunction.apply)

LegacyFakeTensorQuantFunction = FakeTensorQuantFunction
"""NVIDIA's function before it had a CUDA kernel: the same numbers here."""
legacy_fake_tensor_quant = fake_tensor_quant


def integer_range(num_bits: int, unsigned: object, narrow_range: object) -> tuple[int, int]:
    """(lowest, largest) integer."""
    bound = max_bound(as_num_bits(num_bits), unsigned)
    if unsigned:
        return 0, bound
    return (-bound if narrow_range else -bound - 1), bound


def check_inputs(inputs: Tensor, unsigned: object) -> None:
    """Guards what is to be quantized."""
    if not isinstance(inputs, torch.Tensor) or inputs.dtype not in _FLOATS:
        got = inputs.dtype if isinstance(inputs, torch.Tensor) else type(inputs).__name__
        raise QuantTypeError(
            f"inputs: got {got}; wanted a tensor of float32, float64, float16 or bfloat16."
        )
    # values cannot be looked at while a graph is traced
    if not unsigned or inputs.numel() == 0 or torch.compiler.is_compiling():
        return
    lowest = float(inputs.min())
    if lowest < 0:
        raise QuantTypeError(
            f"Negative values encountered in unsigned quantization, down to {lowest:.6g}; make the "
            "descriptor signed, or quantize behind the ReLU."
        )


def check_amax(amax: Tensor, inputs: Tensor) -> None:
    """Guards the range of the integers."""
    if not isinstance(amax, torch.Tensor) or amax.dtype not in _FLOATS:
        got = amax.dtype if isinstance(amax, torch.Tensor) else type(amax).__name__
        raise QuantTypeError(f"amax: got {got}; wanted a tensor of floats: torch.tensor(6.0).")
    trailing = zip(reversed(amax.shape), reversed(inputs.shape), strict=False)
    if amax.dim() > inputs.dim() or any(a not in (1, x) for a, x in trailing):
        raise QuantValueError(
            f"amax of shape {list(amax.shape)} does not broadcast to inputs of shape "
            f"{list(inputs.shape)}; give one value, or one for each channel, with size 1 on every "
            "other axis, as in (channels, 1, 1, 1)."
        )
    if torch.compiler.is_compiling() or bool(((amax >= 0) & amax.isfinite()).all()):
        return
    if bool((amax < 0).any()):
        raise QuantValueError(f"negative values in amax, down to {float(amax.min()):.6g}.")
    raise QuantValueError("amax holds NaN or Inf; calibrate on data without them.")


def _integers(
    inputs: Tensor, amax: Tensor, num_bits: int, unsigned: object, narrow_range: object
) -> tuple[Tensor, Tensor]:
    """Integers as floats, and scale; both at least float32."""
    lowest, bound = integer_range(num_bits, unsigned, narrow_range)
    check_inputs(inputs, unsigned)
    check_amax(amax, inputs)
    wide = inputs.dtype if inputs.dtype == torch.float64 else torch.float32
    amax = amax.to(wide)
    tiny = amax <= TINY_AMAX
    # of two tensors: torch divides a number by multiplying with the reciprocal, which rounds twice
    scale = torch.full_like(amax, bound) / torch.where(tiny, torch.ones_like(amax), amax)
    integers = torch.clamp(torch.round(inputs.to(wide) * scale), lowest, bound)
    integers = torch.where(tiny, torch.zeros_like(integers), integers)
    return integers, torch.where(tiny, torch.ones_like(scale), scale)


# --- fake_affine_tensor_quant: values at quantized levels between min and max, for one tensor.


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

# --- scaled_e4m3: values as 8-bit floats of 4 exponent and 3 mantissa bits hold them.
#
# For looking at what float8 would do to a model: ONNX Runtime's CPU has no such arithmetic, and no
# file that onnxq writes has it.

LARGEST = 448.0  # of float8_e4m3fn, which has no infinity
_BITS = (4, 3)


class ScaledE4M3Function(StraightThrough):
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


scaled_e4m3 = cast("Callable[..., Tensor]", ScaledE4M3Function.apply)

__all__ = [
    "FakeAffineTensorQuantFunction",
    "FakeTensorQuantFunction",
    "LegacyFakeTensorQuantFunction",
    "ScaledE4M3Function",
    "TensorQuantFunction",
    "fake_affine_tensor_quant",
    "fake_tensor_quant",
    "legacy_fake_tensor_quant",
    "scaled_e4m3",
    "tensor_quant",
]


# --- Fake quantization with the scale of amax, as QuantizeLinear rounds, differentiable.

EVERYTHING = 2.0**127  # a scale that makes every integer 0


class OnnxFakeQuantFunction(StraightThrough):
    """clip(rint(x / scale), lowest, bound) * scale, with scale = amax / bound.

    Gradient: straight through where |x| <= amax, else 0.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, amax: Tensor, lowest: int, bound: int) -> Tensor:
        """The rounded x in its shape and type; computed in float32, as ONNX Runtime does."""
        ctx.save_for_backward(x, amax)
        scale = scale_of(amax, bound)
        integers = torch.clamp(torch.round(x.to(torch.float32) / scale), lowest, bound)
        return (integers * scale).to(x.dtype)


onnx_fake_quant = cast("Callable[[Tensor, Tensor, int, int], Tensor]", OnnxFakeQuantFunction.apply)


def scale_of(amax: Tensor, bound: int) -> Tensor:
    """Amax / bound in float32; 2^127, which makes every integer 0, where amax <= 2^-24."""
    amax = amax.to(torch.float32)
    # a tensor, not a number: CUDA multiplies by the reciprocal of a number
    scale = amax / amax.new_full((), bound)
    return torch.where(amax <= TINY_AMAX, torch.full_like(scale, EVERYTHING), scale)
