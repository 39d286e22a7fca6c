"""Convolutions whose weight is fake-quantized while they are trained, transposed ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.modules.transposed import arguments_of, output_padding, per_weight
from onnxq.pytorch.nn.qat.base import QatModule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from onnxq.qconfig import QConfig

Sizes = int | tuple[int, ...]

_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)


class Convolution(QatModule):
    """The arithmetic of a convolution with 1, 2 or 3 spatial axes."""

    @classmethod
    def arguments(cls, layer: Any) -> dict[str, Any]:
        """Channels, kernel and padding, and whether there is a bias."""
        return arguments_of(layer)

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:  # noqa: ARG002  # some take others
        """The convolution with these parameters."""
        result: Tensor = self._conv_forward(x, weight, bias)  # type: ignore[operator]  # torch's own
        return result

    def forward(self, x: Tensor) -> Tensor:
        """The layer with fq(weight) and fq32(bias), batch norm and ReLU where they are fused."""
        return self.activated(self.pre_activation(x))


class TransposedConvolution(QatModule):
    """The arithmetic of a transposed convolution, and where the channels of its weight lie."""

    groups: int

    @classmethod
    def arguments(cls, layer: Any) -> dict[str, Any]:
        """Channels, kernel and padding, and whether there is a bias."""
        return arguments_of(layer)

    def per_weight(self, values: Tensor) -> Tensor:
        """A vector of output channels, shaped to broadcast with (in, out / groups, *kernel)."""
        return per_weight(values, self.weight, self.groups)

    def layer(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        """The transposed convolution with these parameters; `others`: output_size."""
        module: Any = self
        convolve = _TRANSPOSED[self.weight.ndim - 3]
        return convolve(
            x,
            weight,
            bias,
            module.stride,
            module.padding,
            output_padding(module, x, *others),
            self.groups,
            module.dilation,
        )

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The layer with fq(weight) and fq32(bias), batch norm and ReLU where they are fused.

        Raises:
            ShapeError: an output_size that no padding gives.
        """
        return self.activated(self.pre_activation(x, output_size))


class QatConv(Convolution):
    """Convolutions without batch norm; the arguments are nn.Conv2d's and a qconfig.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: str | Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        qconfig: QConfig | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*sizes, bias, padding_mode, device=device, dtype=dtype)
        self.set_qconfig(qconfig)


class QatConvTranspose(TransposedConvolution):
    """Transposed convolutions without batch norm; nn.ConvTranspose2d's arguments and a qconfig.

    Per channel, the weight has a scale for each output channel of a group; depthwise, for each
    channel. The ch_axis of the qconfig's observer does not count.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
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
        qconfig: QConfig | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, output_padding, groups)
        super().__init__(*sizes, bias, dilation, padding_mode, device=device, dtype=dtype)
        self.set_qconfig(qconfig)


class Conv1d(QatConv, nn.Conv1d):
    """nn.Conv1d with a fake-quantized weight."""

    float_type = nn.Conv1d


class Conv2d(QatConv, nn.Conv2d):
    """nn.Conv2d with a fake-quantized weight."""

    float_type = nn.Conv2d


class Conv3d(QatConv, nn.Conv3d):
    """nn.Conv3d with a fake-quantized weight."""

    float_type = nn.Conv3d


class ConvTranspose1d(QatConvTranspose, nn.ConvTranspose1d):
    """nn.ConvTranspose1d with a fake-quantized weight."""

    float_type = nn.ConvTranspose1d


class ConvTranspose2d(QatConvTranspose, nn.ConvTranspose2d):
    """nn.ConvTranspose2d with a fake-quantized weight."""

    float_type = nn.ConvTranspose2d


class ConvTranspose3d(QatConvTranspose, nn.ConvTranspose3d):
    """nn.ConvTranspose3d with a fake-quantized weight."""

    float_type = nn.ConvTranspose3d
