"""The linear layer whose activations are quantized when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.pytorch.nn.quantized.dynamic.weight_codes import (
    is_float16,
    quantized,
    weight_part,
)
from onnxq.pytorch.nn.quantized.prepared import check_type
from onnxq.pytorch.nn.quantized.weight_buffers import WeightBuffers
from onnxq.pytorch.numerics.dynamic_ops import dynamic_quantize_linear, matmul_integer

if TYPE_CHECKING:
    from onnxq.qtensor import QTensor


class Linear(WeightBuffers):
    """y = float32(sum (xq - x_zp) (wq - w_zp)) * (x_scale * w_scale) + b.

    xq, x_scale and x_zp are those of DynamicQuantizeLinear of the whole x, uint8. In the exported
    model DynamicQuantizeLinear and MatMulInteger, which ONNX Runtime fuses; equal to it bit for
    bit. With float16 weights it computes in float32, and no activation is rounded.

    Args:
        in_features: length of the last axis of x.
        out_features: of the result.
        bias_: whether there is one.
        dtype: torch.qint8, or torch.float16 for weights of that type.

    Attributes:
        bias_values: float32 (out_features,), or None.
    """

    float_type: ClassVar[type[nn.Module]] = nn.Linear
    fixed_shapes = ("weight_codes", "bias_values")
    bias_values: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: torch.dtype = torch.qint8,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        stored = torch.float16 if dtype == torch.float16 else torch.int8
        self.register_weight((out_features, in_features), stored)
        self.register_buffer("bias_values", torch.zeros(out_features) if bias_ else None)
        self.refresh()

    def refresh(self) -> None:
        """Notes whether the weight has zero points: a number, so that tracing has no branch."""
        self._centred = not bool(self.weight_zero_point.any())

    @property
    def title(self) -> str:
        """The class in messages and reprs, as torch's: DynamicQuantizedLinear."""
        return f"DynamicQuantized{type(self).__name__}"

    def bias(self) -> torch.Tensor | None:
        """The bias, float32."""
        return self.bias_values

    def set_weight_bias(self, w: QTensor | torch.Tensor, b: torch.Tensor | None) -> None:
        """Stores a quantized weight and a float bias.

        Raises:
            ShapeError: another shape than the constructor was given.
        """
        self.store_weight(self.fitting(w))
        device = self.weight_codes.device
        self.bias_values = None if b is None else b.detach().to(device, torch.float32).clone()
        self.refresh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (..., in_features) -> (..., out_features)."""
        if self.weight_codes.dtype == torch.float16:
            return F.linear(x, self.weight_codes.to(x.dtype), self.bias_values)
        codes, scale, zero_point = dynamic_quantize_linear(x)
        w_zero_point = None if self._centred else self.weight_zero_point
        total = matmul_integer(codes, self.weight_codes.t(), zero_point, w_zero_point)
        y: torch.Tensor = total.to(torch.float32) * (scale * self.weight_scale)
        return y if self.bias_values is None else y + self.bias_values

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a float one; its qconfig, a QConfigDynamic, says how weights are quantized.

        Raises:
            UnsupportedError: another type of module.
            QConfigError: a qconfig of another kind.
        """
        check_type(mod, cls.float_type, cls.__name__)
        linear: Any = mod
        half = is_float16(mod)
        dtype = torch.float16 if half else torch.qint8
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, dtype)
        made.to(linear.weight.device)
        if half:
            made.weight_codes = linear.weight.detach().to(torch.float16)
            made.bias_values = None if linear.bias is None else linear.bias.detach().float()
            return made
        part = weight_part(mod, cls.__name__)
        made.set_weight_bias(quantized(linear.weight, part), linear.bias)
        return made

    def __repr__(self) -> str:
        return f"{self.title}({self.extra_repr()})"

    def extra_repr(self) -> str:
        """Sizes and type of the codes."""
        dtype = str(self.weight_codes.dtype).removeprefix("torch.")
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={dtype}"
        return text if self.bias_values is not None else f"{text}, bias=False"
