"""The linear layer whose activations are quantized when it runs."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.pytorch.nn.quantized.dynamic.weights import DynamicWeights
from onnxq.pytorch.nn.quantized.prepared import check_type
from onnxq.pytorch.numerics.dynamic_ops import dynamic_quantize_linear, matmul_integer
from onnxq.pytorch.numerics.half_inputs import takes_halves


class Linear(DynamicWeights):
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

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias_: bool = True,
        dtype: torch.dtype = torch.qint8,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.make_buffers((out_features, in_features), out_features if bias_ else None)
        if dtype == torch.float16:
            self.weight_integers = self.weight_integers.half()
        self.refresh()

    def refresh(self) -> None:
        """Notes whether the weight has zero points: a number, so that tracing has no branch."""
        self._centred = not bool(self.weight_zero_point.any())

    @takes_halves
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (..., in_features) -> (..., out_features)."""
        if self.is_half:
            return F.linear(x, self.weight_integers.to(x.dtype), self.bias_values)
        integers, scale, zero_point = dynamic_quantize_linear(x)
        w_zero_point = None if self._centred else self.weight_zero_point
        total = matmul_integer(integers, self.weight_integers.t(), zero_point, w_zero_point)
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
        return cls(linear.in_features, linear.out_features, linear.bias is not None).take(mod)

    def extra_repr(self) -> str:
        """Sizes and type of the integers."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        text = f"{sizes}, dtype={self.dtype_repr()}"
        return text if self.bias_values is not None else f"{text}, bias=False"
