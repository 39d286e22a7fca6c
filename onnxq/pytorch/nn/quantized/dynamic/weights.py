"""Weights of a layer whose result is float32: int8 or float16, beside a float bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import torch

from onnxq.pytorch.modules.transposed import along_channels
from onnxq.pytorch.nn.quantized.dynamic.weight_integers import is_float16, quantized, weight_part
from onnxq.pytorch.nn.quantized.weight_buffers import WeightBuffers

if TYPE_CHECKING:
    from torch import nn

    from onnxq.qtensor import QTensor


class DynamicWeights(WeightBuffers):
    """Holds weights as integers, or rounded to float16, and a bias as it is.

    Attributes:
        bias_values: float32 (channels,), or None.
    """

    fixed_shapes = ("weight_integers", "bias_values")
    bias_values: torch.Tensor | None

    def make_buffers(self, shape: tuple[int, ...], bias: int | None) -> None:
        """Weights of 0 at scale 1, as they are before numbers are given.

        Args:
            shape: of the weight.
            bias: its length; None: there is none.
        """
        self.register_weight(shape)
        self.register_buffer("bias_values", None if bias is None else torch.zeros(bias))

    @property
    def title(self) -> str:
        """The class in messages and reprs, as torch's: DynamicQuantizedLinear."""
        return f"DynamicQuantized{type(self).__name__}"

    @property
    def is_half(self) -> bool:
        """Whether the weight is stored as float16."""
        return self.weight_integers.dtype == torch.float16

    def bias(self) -> torch.Tensor | None:
        """The bias, float32."""
        return self.bias_values

    def real_weight(self) -> torch.Tensor:
        """float32 (integers - zero_point) * scale; a weight of float16 widened."""
        return self.weight_integers.float() if self.is_half else super().real_weight()

    def set_weight_bias(self, w: QTensor | torch.Tensor, b: torch.Tensor | None) -> None:
        """Stores a quantized weight and a float bias."""
        self.store_weight(self.fitting(w))
        self._store_bias(b)
        self.refresh()

    def _store_bias(self, b: torch.Tensor | None) -> None:
        device = self.weight_integers.device
        self.bias_values = None if b is None else b.detach().to(device, torch.float32).clone()

    def take(self, mod: nn.Module) -> Self:
        """Stores the weight of a float module as its QConfigDynamic says, and its bias."""
        source: Any = mod
        self.to(source.weight.device)
        if is_float16(mod):
            self.weight_integers = source.weight.detach().to(torch.float16)
            self._store_bias(source.bias)
            return self
        part = along_channels(weight_part(mod, type(self).__name__), mod)
        self.set_weight_bias(quantized(source.weight, part), source.bias)
        return self

    def __repr__(self) -> str:
        return f"{self.title}({self.extra_repr()})"

    def dtype_repr(self) -> str:
        """The type of the stored weight: int8."""
        return str(self.weight_integers.dtype).removeprefix("torch.")
