"""int32 integers of a bias, at the scale of the sums that it is added to: x_scale * w_scale.

Twins of onnxq.qparams on tensors: training differentiates through them, and torch.compile traces
them. A test holds them to the same numbers.
"""

import torch

from onnxq.qparams import MAX_BIAS_INTEGER, MIN_SCALE

LEAST = float(MIN_SCALE)  # torch.compile breaks its graph where NumPy's number is converted


def bias_scale(
    input_scale: torch.Tensor, weight_scale: torch.Tensor, channels: int | None = None
) -> torch.Tensor:
    """Scale of a bias, float32 x_scale * w_scale, never 0: onnxq.qparams.sum_scale on tensors.

    Args:
        input_scale: float32 ().
        weight_scale: float32, () or (channels / groups,): groups of a transposed convolution share
            scales, channel o has that of o % len(weight_scale).
        channels: length of the bias; None: as many as there are scales.
    Returns:
        float32 () or (channels,).
    """
    scale = (input_scale * weight_scale).clamp_min(LEAST)
    if channels is None or scale.ndim == 0 or scale.numel() == channels:
        return scale
    return scale.repeat(channels // scale.numel())


def rounded_bias(bias: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """rint(bias / scale), saturated to int32, as float64; NaN stays NaN."""
    limits = torch.iinfo(torch.int32)
    # float64, as onnxq.affine.quantize for int32 integers
    return (bias.double() / scale.double()).round_().clamp_(limits.min, limits.max)


def bias_integers(bias: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The rounded bias as int32; NaN is refused before."""
    return rounded_bias(bias, scale).to(torch.int32)


def scale_for_int32_bias(
    weight_scale: torch.Tensor, bias: torch.Tensor, input_scale: torch.Tensor
) -> torch.Tensor:
    """The weight's scale, larger in channels whose bias would leave the int32 accumulator."""
    needed = bias.double().abs() / (input_scale.double() * MAX_BIAS_INTEGER)
    if weight_scale.ndim == 0:
        needed = needed.max()
    elif weight_scale.numel() != needed.numel():
        needed = needed.reshape(-1, weight_scale.numel()).amax(0)
    return torch.maximum(weight_scale, needed.to(torch.float32))
