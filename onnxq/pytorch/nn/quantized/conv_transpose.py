"""Transposed convolutions on int8 weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from torch import nn
from torch.nn import functional as F  # noqa: N812  # as everywhere

from onnxq.errors import QConfigError
from onnxq.pytorch.modules.transposed import channel_axis, output_padding
from onnxq.pytorch.nn.quantized.prepared import check_type, core_of, float_weights
from onnxq.pytorch.nn.quantized.weighted import Weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

Sizes = int | tuple[int, ...]


class _ConvTransposeNd(Weighted):
    """y[n, o, i * stride + k * dilation - pad] += x[n, c, i] w[c, o, k], + b[o].

    The arguments are those of torch.nn's module. In the exported model a QLinearConv over the
    phases of the result, which are then put in their places.
    """

    dims: ClassVar[int]
    convolve: ClassVar[Callable[..., torch.Tensor]]

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
        if in_channels % groups or out_channels % groups:
            raise QConfigError(
                f"{name}: {in_channels} to {out_channels} channels in {groups} groups; wanted "
                "multiples of the number of groups."
            )
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
        """The sums in float32, not yet on the grid of the result."""
        return self.convolve(
            x,
            self.real_weight(),
            self.bias(),
            self.stride,
            self.padding,
            output_padding(self, x, output_size),
            self.groups,
            self.dilation,
        )

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
            core.output_padding,
            core.groups,
            source.bias is not None,
            core.dilation,
        )
        return made.take(mod, source)

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        # these modules import this package
        from onnxq.pytorch.nn import qat
        from onnxq.pytorch.nn.intrinsic import qat as fused

        return (
            (nn.ConvTranspose1d, qat.ConvTranspose1d, fused.ConvTransposeBn1d),
            (nn.ConvTranspose2d, qat.ConvTranspose2d, fused.ConvTransposeBn2d),
            (nn.ConvTranspose3d, qat.ConvTranspose3d, fused.ConvTransposeBn3d),
        )[cls.dims - 1]

    def extra_repr(self) -> str:
        """As torch's: what is not a default, scale and zero point."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, {self.grid_repr()}"
        )
        defaults = {"padding": 0, "output_padding": 0, "dilation": 1}
        for name, usual in defaults.items():
            if getattr(self, name) != (usual,) * self.dims:
                text += f", {name}={getattr(self, name)}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias_codes is not None else f"{text}, bias=False"


class ConvTranspose1d(_ConvTransposeNd):
    """torch.nn.ConvTranspose1d on int8 weights; x (batch, channels, length) on its grid."""

    dims = 1
    convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """torch.nn.ConvTranspose2d on int8 weights; x (batch, channels, height, width) on its grid."""

    dims = 2
    convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """torch.nn.ConvTranspose3d on int8 weights; x (batch, channels, *spatial) on its grid."""

    dims = 3
    convolve = staticmethod(F.conv_transpose3d)


def _sizes(value: Any, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value)
