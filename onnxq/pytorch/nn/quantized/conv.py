"""Convolutions on int8 weights, transposed ones too."""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from onnxq.errors import QConfigError
from onnxq.pytorch.modules.transposed import (
    CONVS,
    TRANSPOSED,
    arguments_of,
    channel_axis,
    convolved,
)
from onnxq.pytorch.nn.quantized.weighted import Weighted
from onnxq.pytorch.nn.triplets import Triplet, given, names_of, triplet

# --- Convolutions of stored weights, transposed ones too: arguments and sums, without the storage.

_USUAL = {"padding": 0, "output_padding": 0, "dilation": 1}  # a repr shows what differs


class Convolution(nn.Module):
    """A convolution, transposed or not, whose subclass stores the weights.

        y[n, o, p] = b[o] + sum_{c, k} x[n, c, p * stride + k * dilation - pad] w[o, c, k]
        y[n, o, i * stride + k * dilation - pad] += x[n, c, i] w[c, o, k], + b[o]

    The arguments are those of torch.nn's module, `layer_type`.

    Attributes:
        channel_axis: of the weight, along which scales lie.
    """

    layer_type: ClassVar[type[nn.Module]]
    channel_axis: int
    transposed: bool
    padding_mode: str
    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        arguments = given(self, args, kwargs)
        del arguments["dtype"]  # integers are int8
        device = arguments.pop("device")
        kind: Any = self.layer_type
        try:
            layer = kind(**arguments, device="meta")
        except ValueError as error:
            raise QConfigError(f"{type(self).__name__}: {error}.") from error
        for name in (*arguments_of(layer).keys() - {"bias"}, "transposed"):
            setattr(self, name, getattr(layer, name))
        shape = tuple(layer.weight.shape)
        self.channel_axis = channel_axis(shape, layer.groups) if layer.transposed else 0
        self.make_buffers(shape, layer.out_channels if arguments["bias"] else None)
        self.to(device)

    def make_buffers(self, shape: tuple[int, ...], bias: int | None) -> None:
        """Weights of 0, as they are before numbers are given; the subclass says it."""
        raise NotImplementedError

    def real_weight(self) -> torch.Tensor:
        """The weight in float32; the subclass says it."""
        raise NotImplementedError

    def bias(self) -> torch.Tensor | None:
        """The bias in float32; the subclass says it."""
        raise NotImplementedError

    def convolved(self, x: torch.Tensor, *others: Any) -> torch.Tensor:
        """The sums in float32; `others`: output_size of a transposed one."""
        return convolved(self, x, self.real_weight(), self.bias(), *others)

    def sizes_repr(self) -> str:
        """Channels, kernel and stride: the start of a repr."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )

    def options_repr(self, has_bias: object) -> str:
        """The arguments that are not defaults: the end of a repr, as torch's."""
        text = ""
        for name, usual in _USUAL.items():
            sizes = getattr(self, name, None)
            if sizes not in (None, (usual,) * len(self.kernel_size)):
                text += f", {name}={sizes}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if not has_bias:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, mode={self.padding_mode}"


def stored_triplet(
    module: str, name: str, doc: str, base: type, layers: tuple[type[nn.Module], ...]
) -> Triplet:
    """Makes {name}1d, {name}2d and {name}3d, with the arguments of torch.nn's layers."""

    def layer(n: int) -> type[nn.Module]:
        return layers[n - 1]

    return triplet(
        module,
        name,
        doc.format(name),
        base,
        float_type=layer,
        layer_type=layer,
        __signature__=lambda n: inspect.signature(layer(n)),
    )


class _ConvNd(Weighted, Convolution):
    """A convolution or a transposed one on integers; its result is fake-quantized."""

    @property
    def output_channels(self) -> int:
        """Length of a bias."""
        return self.out_channels

    def computed(self, x: torch.Tensor, *others: Any) -> torch.Tensor:
        """The sums and their ReLU in float32, not quantized yet."""
        return self.activated(self.convolved(x, *others))

    def extra_repr(self) -> str:
        """Sizes, scale and zero point, and the arguments that are not defaults, as torch's."""
        options = self.options_repr(self.bias_integers is not None)
        return f"{self.sizes_repr()}, {self.qparams_repr()}{options}"


class _Conv(_ConvNd):
    """A convolution: in the exported model a QLinearConv."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Fake-quantized float32, (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.requantized(self.computed(x))


class _ConvTranspose(_ConvNd):
    """A transposed convolution: in the exported model a QLinearConv over the phases of the result.

    These are then put in their places.
    """

    def forward(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """Fake-quantized float32, (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.requantized(self.computed(x, output_size))


if not TYPE_CHECKING:  # which reads no list that is computed
    __all__ = names_of("Conv", "ConvTranspose")
_INT8 = "torch.nn.{}{{n}}d on int8 weights; x: fake-quantized (batch, channels, *spatial)."
Conv1d, Conv2d, Conv3d = stored_triplet(__name__, "Conv", _INT8, _Conv, CONVS)
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = stored_triplet(
    __name__, "ConvTranspose", _INT8, _ConvTranspose, TRANSPOSED
)
