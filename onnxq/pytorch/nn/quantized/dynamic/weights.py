"""Weights of a layer whose result is float32: int8 or float16, beside a float bias."""

from typing import Any, Self

import torch
from torch import nn

from onnxq.errors import QConfigError, kind_of
from onnxq.pytorch.modules.transposed import along_channels
from onnxq.pytorch.nn.quantized.stored import WeightBuffers
from onnxq.pytorch.nn.quantized.weighted import having_seen
from onnxq.pytorch.numerics.fake_quantize import fake_quantize_module
from onnxq.qconfig import Part, QConfigDynamic, onnxq_default_dynamic_qconfig
from onnxq.qtensor import QTensor

# --- Weights of float modules as integers, for dynamic quantization.


def is_float16(mod: nn.Module) -> bool:
    """Whether the module's QConfigDynamic stores its weights as float16."""
    qconfig = getattr(mod, "qconfig", None)
    return isinstance(qconfig, QConfigDynamic) and qconfig.weight_observer.name == "NoopObserver"


def dtype_of(mod: nn.Module) -> torch.dtype:
    """The type of weights, as torch names it, that the module's qconfig asks for."""
    return torch.float16 if is_float16(mod) else torch.qint8


def weight_part(mod: nn.Module, wanted_by: str) -> Part:
    """How the module's weights are quantized: by its QConfigDynamic, else onnxq's default."""
    qconfig = getattr(mod, "qconfig", None) or onnxq_default_dynamic_qconfig
    if not isinstance(qconfig, QConfigDynamic):
        raise QConfigError(
            f"{wanted_by}.from_float: the {type(mod).__name__} has {kind_of(qconfig)}; "
            "wanted a QConfigDynamic, such as onnxq.qconfig.default_dynamic_qconfig."
        )
    return qconfig.weight


def quantized(weight: torch.Tensor, part: Part) -> QTensor:
    """The integers of a float weight, channels along axis 0 where there are several scales."""
    fake = having_seen(fake_quantize_module(part), weight)
    integers = fake.integers(weight.detach().to(torch.float32))
    return QTensor(integers.cpu().numpy(), fake.qparams())


class DynamicWeights(WeightBuffers):
    """Holds weights as integers, or rounded to float16, and a bias as it is."""

    fixed_shapes = ("weight_integers", "bias_values")
    bias_values: torch.Tensor | None

    def make_buffers(self, shape: tuple[int, ...], bias: int | None) -> None:
        """Weights of 0 at scale 1, as they are before numbers are given."""
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
        return self.take_from(mod, source.weight, source.bias)

    def take_from(self, mod: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None) -> Self:
        """Stores one of a float module's weights as its QConfigDynamic says, and its bias."""
        if is_float16(mod):
            self.weight_integers = weight.detach().to(torch.float16)
            self._store_bias(bias)
            return self
        part = along_channels(weight_part(mod, type(self).__name__), mod)
        self.set_weight_bias(quantized(weight, part), bias)
        return self

    def dtype_repr(self) -> str:
        """The type of the stored weight: int8."""
        return str(self.weight_integers.dtype).removeprefix("torch.")
