"""Functions whose result keeps scale and zero point of their input, and may lie between its levels.

    x (scale s, zero point z) --mean, avg_pool2d, clamp--> floats --round_input--> (s, z)

torch's quantized kernels of these functions keep scale and zero point, too. A function has no
module that could round its result, so that the layer that reads it does.

One in n means of n integers is a tie where n is even, and float32 has lost that. ONNX Runtime's
QLinearGlobalAveragePool adds up integers, so that this is what the layer's input is rounded to,

    rint(float32(sum) * (s / (s * n))),    sum: the whole number next to mean / s * n
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from onnxq.pytorch.modules.places import has_pre_hook
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.numerics.fake_quantize import FakeQuantize

_SAME_SCALE_AS_INPUT = """
    mean avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d interpolate upsample upsample_bilinear
    hardtanh hardtanh_ relu6 clamp clamp_ clip clip_ leaky_relu leaky_relu_
"""
SAME_SCALE_AS_INPUT = frozenset(_SAME_SCALE_AS_INPUT.split())
"""Functions whose quantized kernels in torch keep scale and zero point of their input."""
_MEANS = frozenset(["mean", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"])
_WHOLE = 0.1  # a sum of integers that float32 puts further from a whole number is none


@dataclass(frozen=True)
class Between:
    """A tensor between two levels.

    Attributes:
        fake: whose qparams.
        averaged: number of integers that each value is the mean of, in the first pass; 0: it is no
            mean of an image.
    """

    fake: FakeQuantize
    averaged: int = field(default=0, compare=False)


def averaged(name: str, x: Tensor, result: Tensor) -> int:
    """Number of values that each result is the mean of; 0 where it is none of a whole image."""
    is_global = x.ndim > 2 and result.shape[:2] == x.shape[:2]
    if name not in _MEANS or not is_global or result.numel() != x.shape[0] * x.shape[1]:
        return 0
    return x[0, 0].numel()


def exact_mean(x: Tensor, scale: Tensor, count: int) -> Tensor:
    """Means of integers, rounded as integers are; the gradient is that of x."""
    if not count or x.dtype != torch.float32 or torch.compiler.is_exporting():
        return x
    means, s = x.detach(), scale.detach()
    sums = means / s * count
    whole = sums.round()
    rounded = (whole * (s / (s * count))).round() * s
    exact = torch.where((sums - whole).abs() <= _WHOLE, rounded, means)
    return x + (exact - means)


def round_input(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The hook of a prepared layer: its input is rounded with the qparams of `input_fake_quant`."""
    fake: FakeQuantize = layer.input_fake_quant
    if not fake.fake_quant_enabled:
        return args
    return (fake.rounded(exact_mean(args[0], fake.scale, layer.input_averaged)), *args[1:])


def requantize_input(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The hook of a converted layer: as round_input, with QuantizeLinear and DequantizeLinear."""
    requantize: Requantize = layer.input_requantize
    return (requantize(exact_mean(args[0], requantize.scale, layer.input_averaged)), *args[1:])


def keep_rounding(prepared: nn.Module, converted: nn.Module) -> None:
    """Lets the converted layer round its input, if the prepared one does."""
    if has_pre_hook(prepared, round_input):
        converted.input_requantize = Requantize.from_float(prepared.input_fake_quant)  # type: ignore[arg-type]  # a FakeQuantize
        converted.input_averaged = prepared.input_averaged
        converted.register_forward_pre_hook(requantize_input)
