"""Transposed convolutions whose weight is fake-quantized while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.modules.transposed import output_padding, per_weight
from onnxq.pytorch.nn.qat.base import QatModule
from onnxq.pytorch.nn.qat.conv import arguments_of, float_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from onnxq.qconfig import QConfig

_FUNCTIONS: tuple[Callable[..., Tensor], ...] = (
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)


class Transposed(QatModule):
    """The arithmetic, and where the channels of the weight lie."""

    groups: int

    def per_weight(self, values: Tensor) -> Tensor:
        """A vector of output channels, shaped to broadcast with (in, out / groups, *kernel)."""
        return per_weight(values, self.weight, self.groups)

    def convolved(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        output_size: Sequence[int] | None = None,
    ) -> Tensor:
        """The transposed convolution with these parameters."""
        module: Any = self
        convolve = _FUNCTIONS[self.weight.ndim - 3]
        return convolve(
            x,
            weight,
            bias,
            module.stride,
            module.padding,
            output_padding(module, x, output_size),
            self.groups,
            module.dilation,
        )


class QatConvTranspose(Transposed):
    """What those of 1, 2 and 3 dimensions share; nn.ConvTranspose2d's arguments and a qconfig.

    Per channel, the weight has a scale for each output channel of a group; depthwise, for each
    channel. The ch_axis of the qconfig's observer does not count.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: str = "zeros",
        qconfig: QConfig | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        shape: dict[str, Any] = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "stride": stride,
            "padding": padding,
            "output_padding": output_padding,
            "groups": groups,
            "bias": bias,
            "dilation": dilation,
            "padding_mode": padding_mode,
        }
        super().__init__(**shape, device=device, dtype=dtype)
        self.set_qconfig(qconfig)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """conv_transpose(x, fq(weight), fq32(bias)).

        Raises:
            ShapeError: an output_size that no padding gives.
        """
        return self.convolved(x, *self.deployed(), output_size)

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the parameters of a float one that has a qconfig.

        Raises:
            ModelError: another type of module.
            QConfigError: no qconfig.
        """
        qconfig = cls.check_float(mod)
        conv: Any = mod[0] if isinstance(mod, nn.Sequential) else mod
        made = cls(**arguments_of(conv), qconfig=qconfig)
        return made.take(conv.weight, conv.bias).train(mod.training)

    def to_float(self) -> nn.Module:
        """The float module again, with the parameters as they are now."""
        return float_of(self)


class ConvTranspose1d(QatConvTranspose, nn.ConvTranspose1d):
    """nn.ConvTranspose1d with a fake-quantized weight."""

    FLOAT: ClassVar[tuple[type[nn.Module], ...]] = (nn.ConvTranspose1d,)


class ConvTranspose2d(QatConvTranspose, nn.ConvTranspose2d):
    """nn.ConvTranspose2d with a fake-quantized weight."""

    FLOAT: ClassVar[tuple[type[nn.Module], ...]] = (nn.ConvTranspose2d,)


class ConvTranspose3d(QatConvTranspose, nn.ConvTranspose3d):
    """nn.ConvTranspose3d with a fake-quantized weight."""

    FLOAT: ClassVar[tuple[type[nn.Module], ...]] = (nn.ConvTranspose3d,)
