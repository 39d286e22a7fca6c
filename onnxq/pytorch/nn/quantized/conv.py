"""Convolutions on int8 weights, transposed ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.errors import QConfigError, nearest
from onnxq.pytorch.modules.transposed import arguments_of, channel_axis, output_padding
from onnxq.pytorch.nn.quantized.prepared import check_layer, core_of, float_weights
from onnxq.pytorch.nn.quantized.weighted import Weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Sizes = int | tuple[int, ...]
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")

_USUAL = {"padding": 0, "output_padding": 0, "dilation": 1}  # a repr shows what differs


class _ConvNd(Weighted):
    """A convolution or a transposed one, of `dims` spatial axes."""

    dims: ClassVar[int]
    convolve: ClassVar[Callable[..., torch.Tensor]]

    padding_mode: str = "zeros"
    in_channels: int
    out_channels: int
    groups: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a prepared one: of nn.qat or nn.intrinsic.qat, or torch.nn's, observed.

        Raises:
            UnsupportedError: another type of module.
            CalibrationError: no data was seen.
        """
        check_layer(mod, cls.float_type, cls.__name__)
        source = float_weights(mod, cls.__name__)
        made = cls(**arguments_of(core_of(mod)) | {"bias": source.bias is not None})
        return made.take(mod, source)

    def extra_repr(self) -> str:
        """Sizes, scale and zero point, and the arguments that are not defaults, as torch's."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, {self.grid_repr()}"
        )
        for name, usual in _USUAL.items():
            sizes = getattr(self, name, None)
            if sizes not in (None, (usual,) * self.dims):
                text += f", {name}={sizes}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias_codes is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, mode={self.padding_mode}"


class _Conv(_ConvNd):
    """y[n, o, p] = b[o] + sum_{c, k} x[n, c, p * stride + k * dilation - pad] w[o, c, k].

    The arguments are those of torch.nn's module. In the exported model a QLinearConv.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002  # of torch's signature; codes are int8
    ) -> None:
        super().__init__()
        if padding_mode not in PADDING_MODES:
            raise QConfigError(
                f"{type(self).__name__}: padding_mode '{padding_mode}' is not known; known: "
                f"{', '.join(PADDING_MODES)}.{nearest(padding_mode, PADDING_MODES)}"
            )
        _check_groups(type(self).__name__, in_channels, out_channels, groups)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _sizes(kernel_size, self.dims)
        self.stride = _sizes(stride, self.dims)
        self.padding = padding if isinstance(padding, str) else _sizes(padding, self.dims)
        self.dilation = _sizes(dilation, self.dims)
        self.padding_mode = padding_mode
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.make_buffers(shape, out_channels if bias else None)
        self.to(device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 on its grid, (batch, in_channels, *spatial) -> (batch, out_channels, *)."""
        return self.requantized(self.computed(x))

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums and their ReLU in float32, not yet on the grid of the result."""
        mode = self.padding_mode
        padded = x if mode == "zeros" else F.pad(x, self._sides(), mode)
        sums = self.convolve(
            padded,
            self.real_weight(),
            self.bias(),
            self.stride,
            self.padding if mode == "zeros" else 0,
            self.dilation,
            self.groups,
        )
        return self.activated(sums)

    def _sides(self) -> list[int]:
        """Padding as F.pad wants it: last axis first, both sides."""
        if self.padding == "valid":
            return [0] * (2 * self.dims)
        sides: list[int] = []
        for axis in reversed(range(self.dims)):
            if isinstance(self.padding, str):  # "same"
                total = self.dilation[axis] * (self.kernel_size[axis] - 1)
                sides += [total // 2, total - total // 2]
            else:
                sides += [self.padding[axis]] * 2
        return sides


class _ConvTranspose(_ConvNd):
    """y[n, o, i * stride + k * dilation - pad] += x[n, c, i] w[c, o, k], + b[o].

    The arguments are those of torch.nn's module. In the exported model a QLinearConv over the
    phases of the result, which are then put in their places.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,  # noqa: ARG002  # of torch's signature; codes are int8
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if padding_mode != "zeros":
            raise QConfigError(f"{name}: padding_mode '{padding_mode}'; there is 'zeros' alone.")
        _check_groups(name, in_channels, out_channels, groups)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _sizes(kernel_size, self.dims)
        self.stride = _sizes(stride, self.dims)
        self.padding = _sizes(padding, self.dims)
        self.output_padding = _sizes(output_padding, self.dims)
        self.dilation = _sizes(dilation, self.dims)
        shape = (in_channels, out_channels // groups, *self.kernel_size)
        self.channel_axis = channel_axis(shape, groups)
        self.make_buffers(shape, out_channels if bias else None)
        self.to(device)

    @property
    def output_channels(self) -> int:
        """Length of a bias."""
        return self.out_channels

    def forward(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """Float32 on its grid, (batch, in_channels, *spatial) -> (batch, out_channels, *).

        Raises:
            ShapeError: an output_size that no padding gives.
        """
        return self.requantized(self.computed(x, output_size))

    def computed(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """The sums and their ReLU in float32, not yet on the grid of the result."""
        sums = self.convolve(
            x,
            self.real_weight(),
            self.bias(),
            self.stride,
            self.padding,
            output_padding(self, x, output_size),
            self.groups,
            self.dilation,
        )
        return self.activated(sums)


class Conv1d(_Conv):
    """torch.nn.Conv1d on int8 weights; x (batch, channels, length) on its grid."""

    float_type: ClassVar[type[nn.Module]] = nn.Conv1d
    dims = 1
    convolve = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """torch.nn.Conv2d on int8 weights; x (batch, channels, height, width) on its grid."""

    float_type: ClassVar[type[nn.Module]] = nn.Conv2d
    dims = 2
    convolve = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """torch.nn.Conv3d on int8 weights; x (batch, channels, depth, height, width) on its grid."""

    float_type: ClassVar[type[nn.Module]] = nn.Conv3d
    dims = 3
    convolve = staticmethod(F.conv3d)


class ConvTranspose1d(_ConvTranspose):
    """torch.nn.ConvTranspose1d on int8 weights; x (batch, channels, length) on its grid."""

    float_type: ClassVar[type[nn.Module]] = nn.ConvTranspose1d
    dims = 1
    convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """torch.nn.ConvTranspose2d on int8 weights; x (batch, channels, height, width) on its grid."""

    float_type: ClassVar[type[nn.Module]] = nn.ConvTranspose2d
    dims = 2
    convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """torch.nn.ConvTranspose3d on int8 weights; x (batch, channels, *spatial) on its grid."""

    float_type: ClassVar[type[nn.Module]] = nn.ConvTranspose3d
    dims = 3
    convolve = staticmethod(F.conv_transpose3d)


def _sizes(value: Any, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value)


def _check_groups(name: str, in_channels: int, out_channels: int, groups: int) -> None:
    if in_channels % groups or out_channels % groups:
        raise QConfigError(
            f"{name}: {in_channels} to {out_channels} channels in {groups} groups; wanted "
            "multiples of the number of groups."
        )
