"""Normalizations at quantized levels: computed in float32 between integers, as ONNX Runtime does.

It has no integer kernel for them. Batch norm is better fused into the convolution before it.
"""

from typing import Any, ClassVar, Self

import torch
from torch import nn

from onnxq.pytorch.nn.quantized.output_qparams import QuantizedOutput
from onnxq.pytorch.nn.quantized.requantize import Requantize
from onnxq.pytorch.nn.quantized.weighted import arguments_in, check_type
from onnxq.pytorch.nn.triplets import REQUIRED, given, signature_of, triplet

__all__ = [
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
]


class Normalization(QuantizedOutput):
    """A float normalization, and the qparams of its result."""

    def hold(self, weight: torch.Tensor | None, bias: torch.Tensor | None) -> None:
        """Takes weight and bias, which are not trained any more; None leaves those of 1 and 0."""
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                setattr(self, name, nn.Parameter(value.detach().clone(), requires_grad=False))

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The normalized x, and its ReLU where one is fused, in float32."""
        # the float module is the base class behind these
        y: torch.Tensor = super(QuantizedOutput, self).forward(x)
        return self.activated(y)

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module with the parameters of a float one and the observed qparams."""
        check_type(mod, cls.float_type, cls.__name__)
        norm: Any = mod[0] if isinstance(mod, nn.Sequential) else mod
        made = cls(**arguments_in(norm, cls))
        made.load_state_dict(norm.state_dict(), strict=False)  # all but the qparams
        if norm.bias is None:
            made.bias = None  # type: ignore[assignment]  # as torch does
        made.output = Requantize.from_float(mod)
        tensors = [*norm.parameters(), *norm.buffers()]
        return made.to(tensors[0].device) if tensors else made


class _BatchNorm(Normalization):
    """The arguments are torch.nn's; scale 1 and zero point 0 are to be set."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, device=device, dtype=dtype)
        self.output = Requantize().to(device)
        self.requires_grad_(False).eval()


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d with its running statistics; x (batch, channels, height, width)."""

    float_type: ClassVar[type[nn.Module]] = nn.BatchNorm2d


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d with its running statistics; x (batch, channels, *3 axes)."""

    float_type: ClassVar[type[nn.Module]] = nn.BatchNorm3d


class _Affine(Normalization):
    """The arguments are torch.nn.quantized's; weight and bias None stand for 1 and 0."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        arguments = given(self, args, kwargs)
        weight, bias, scale, zero_point = (arguments.pop(name) for name in _NUMBERS)
        super().__init__(**arguments)
        self.hold(weight, bias)
        self.output = Requantize(scale, zero_point).to(arguments["device"])
        self.eval()


_NUMBERS = dict.fromkeys(["weight", "bias", "scale", "zero_point"], REQUIRED)


class LayerNorm(_Affine, nn.LayerNorm):
    """torch.nn.LayerNorm; weight and bias are given, or None for 1 and 0."""

    float_type = nn.LayerNorm
    __signature__ = signature_of(nn.LayerNorm, "eps", **_NUMBERS)


class GroupNorm(_Affine, nn.GroupNorm):
    """torch.nn.GroupNorm; weight and bias are given, or None for 1 and 0."""

    float_type = nn.GroupNorm
    __signature__ = signature_of(nn.GroupNorm, "eps", **_NUMBERS)


INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = triplet(
    __name__,
    "InstanceNorm",
    "torch.nn.InstanceNorm{n}d; x (batch, channels, *spatial).",
    _Affine,
    INSTANCE_NORMS,
    float_type=lambda n: INSTANCE_NORMS[n - 1],
    __signature__=lambda n: signature_of(INSTANCE_NORMS[n - 1], "eps", **_NUMBERS),
)
