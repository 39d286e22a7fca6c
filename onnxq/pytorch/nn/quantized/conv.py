"""Convolutions on int8 weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.errors import QConfigError, nearest
from onnxq.pytorch.nn.quantized.prepared import check_type, core_of, float_weights
from onnxq.pytorch.nn.quantized.weighted import Weighted

if TYPE_CHECKING:
    from collections.abc import Callable

Sizes = int | tuple[int, ...]
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Weighted):
    """y[n, o, p] = b[o] + sum_{c, k} x[n, c, p * stride + k * dilation - pad] w[o, c, k].

    The arguments are those of torch.nn's module. In the exported model a QLinearConv.
    """

    dims: ClassVar[int]
    convolve: ClassVar[Callable[..., torch.Tensor]]

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
        _check(type(self).__name__, in_channels, out_channels, groups, padding_mode)
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
        """The sums in float32, not yet on the grid of the result."""
        mode = self.padding_mode
        padded = x if mode == "zeros" else F.pad(x, self._sides(), mode)
        return self.convolve(
            padded,
            self.real_weight(),
            self.bias(),
            self.stride,
            self.padding if mode == "zeros" else 0,
            self.dilation,
            self.groups,
        )

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

    @classmethod
    def from_float(cls, mod: nn.Module, use_precomputed_fake_quant: object = False) -> Self:  # noqa: ARG003  # torch's
        """The module of a prepared one: of nn.qat or nn.intrinsic.qat, or torch.nn's, observed.

        Raises:
            UnsupportedError: another type of module.
            CalibrationError: no data was seen.
        """
        check_type(mod, cls.accepted(), cls.__name__)
        source = float_weights(mod, cls.__name__)
        core: Any = core_of(mod)
        made = cls(
            core.in_channels,
            core.out_channels,
            core.kernel_size,
            core.stride,
            core.padding,
            core.dilation,
            core.groups,
            source.bias is not None,
            core.padding_mode,
        )
        return made.take(mod, source)

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        # these modules import this package
        from onnxq.pytorch.nn import qat
        from onnxq.pytorch.nn.intrinsic import qat as fused

        return (
            (nn.Conv1d, qat.Conv1d, fused.ConvBn1d),
            (nn.Conv2d, qat.Conv2d, fused.ConvBn2d),
            (nn.Conv3d, qat.Conv3d, fused.ConvBn3d),
        )[cls.dims - 1]

    def extra_repr(self) -> str:
        """As torch's: what is not a default, scale and zero point."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, {self.grid_repr()}"
        )
        zeros = (0,) * self.dims
        if self.padding != zeros:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.dims:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias_codes is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, mode={self.padding_mode}"


class Conv1d(_ConvNd):
    """torch.nn.Conv1d on int8 weights; x (batch, channels, length) on its grid."""

    dims = 1
    convolve = staticmethod(F.conv1d)


class Conv2d(_ConvNd):
    """torch.nn.Conv2d on int8 weights; x (batch, channels, height, width) on its grid."""

    dims = 2
    convolve = staticmethod(F.conv2d)


class Conv3d(_ConvNd):
    """torch.nn.Conv3d on int8 weights; x (batch, channels, depth, height, width) on its grid."""

    dims = 3
    convolve = staticmethod(F.conv3d)


def _sizes(value: Any, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value)


def _check(name: str, in_channels: int, out_channels: int, groups: int, padding_mode: str) -> None:
    if padding_mode not in PADDING_MODES:
        raise QConfigError(
            f"{name}: padding_mode '{padding_mode}' is not known; known: "
            f"{', '.join(PADDING_MODES)}.{nearest(padding_mode, PADDING_MODES)}"
        )
    if in_channels % groups or out_channels % groups:
        raise QConfigError(
            f"{name}: {in_channels} to {out_channels} channels in {groups} groups; wanted "
            "multiples of the number of groups."
        )
