"""Convolutions in float on int8 weights: ONNX Runtime's ConvInteger is slower than its Conv."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import nn

from onnxq.pytorch.modules.transposed import CONVS, TRANSPOSED, arguments_of
from onnxq.pytorch.nn.quantized.conv import Convolution, stored_triplet
from onnxq.pytorch.nn.quantized.dynamic.weights import DynamicWeights
from onnxq.pytorch.nn.quantized.weighted import check_type
from onnxq.pytorch.nn.triplets import names_of
from onnxq.pytorch.numerics.half_inputs import takes_halves


class _Dynamic(DynamicWeights, Convolution):
    """A convolution or a transposed one whose weights are int8 or float16.

    In the exported model DequantizeLinear of the weight, which ONNX Runtime carries out when it
    loads the model, and Conv or ConvTranspose in float: the form that onnxq.quantize_dynamic gives
    these operators.
    """

    float_type: ClassVar[type[nn.Module]]

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a float one, its weights quantized as its QConfigDynamic says."""
        check_type(mod, cls.float_type, cls.__name__)
        return cls(**arguments_of(mod)).take(mod)

    def extra_repr(self) -> str:
        """Sizes, type of the weights, and the arguments that are not defaults."""
        options = self.options_repr(self.bias_values is not None)
        return f"{self.sizes_repr()}, dtype={self.dtype_repr()}{options}"


class _Conv(_Dynamic):
    """A convolution on stored weights, float32 in and out."""

    @takes_halves
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.convolved(x)


class _ConvTranspose(_Dynamic):
    """A transposed convolution on stored weights, float32 in and out."""

    @takes_halves
    def forward(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """float32 (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.convolved(x, output_size)


if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = names_of("Conv", "ConvTranspose")
_IN_FLOAT = "torch.nn.{}{{n}}d in float on int8 weights; x (batch, channels, *spatial)."
Conv1d, Conv2d, Conv3d = stored_triplet(__name__, "Conv", _IN_FLOAT, _Conv, CONVS)
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = stored_triplet(
    __name__, "ConvTranspose", _IN_FLOAT, _ConvTranspose, TRANSPOSED
)
