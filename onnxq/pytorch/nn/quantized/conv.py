"""Convolutions on int8 weights, transposed ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from onnxq.pytorch.modules.transposed import CONVS, TRANSPOSED, arguments_of
from onnxq.pytorch.nn.quantized.convolution import (
    Convolution,
    ConvolutionBase,
    TransposedConvolution,
)
from onnxq.pytorch.nn.quantized.prepared import check_layer, core_of, float_weights
from onnxq.pytorch.nn.quantized.weighted import Weighted
from onnxq.pytorch.nn.triplets import triplet

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import nn


class _ConvNd(Weighted, ConvolutionBase):
    """A convolution or a transposed one on integers; its result is fake-quantized."""

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a prepared one: of nn.qat or nn.intrinsic.qat, or torch.nn's, observed."""
        check_layer(mod, cls.float_type, cls.__name__)
        source = float_weights(mod, cls.__name__)
        made = cls(**arguments_of(core_of(mod)) | {"bias": source.bias is not None})
        return made.take(mod, source)

    def extra_repr(self) -> str:
        """Sizes, scale and zero point, and the arguments that are not defaults, as torch's."""
        options = self.options_repr(self.bias_integers is not None)
        return f"{self.sizes_repr()}, {self.qparams_repr()}{options}"


class _Conv(Convolution, _ConvNd):
    """A convolution: in the exported model a QLinearConv."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Fake-quantized float32, (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.requantized(self.computed(x))

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums and their ReLU in float32, not quantized yet."""
        return self.activated(self.convolved(x))


class _ConvTranspose(TransposedConvolution, _ConvNd):
    """A transposed convolution: in the exported model a QLinearConv over the phases of the result.

    These are then put in their places.
    """

    @property
    def output_channels(self) -> int:
        """Length of a bias."""
        return self.out_channels

    def forward(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """Fake-quantized float32, (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.requantized(self.computed(x, output_size))

    def computed(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """The sums and their ReLU in float32, not quantized yet."""
        return self.activated(self.convolved(x, output_size))


Conv1d, Conv2d, Conv3d = triplet(
    __name__,
    "Conv",
    "torch.nn.Conv{n}d on int8 weights; x: fake-quantized (batch, channels, *spatial).",
    _Conv,
    float_type=lambda n: CONVS[n - 1],
    dims=lambda n: n,
)
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = triplet(
    __name__,
    "ConvTranspose",
    "torch.nn.ConvTranspose{n}d on int8 weights; x: fake-quantized (batch, channels, *spatial).",
    _ConvTranspose,
    float_type=lambda n: TRANSPOSED[n - 1],
    dims=lambda n: n,
)
