"""Convolutions whose weight is fake-quantized while they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from torch import Tensor, nn

from onnxq.pytorch.modules.transposed import TRANSPOSED
from onnxq.pytorch.nn.qat.base import QatModule

if TYPE_CHECKING:
    import torch

    from onnxq.qconfig import QConfig


class QatConv(QatModule):
    """What those of 1, 2 and 3 dimensions share; the arguments are nn.Conv2d's and a qconfig.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
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
            "dilation": dilation,
            "groups": groups,
            "bias": bias,
            "padding_mode": padding_mode,
        }
        super().__init__(**shape, device=device, dtype=dtype)
        self.set_qconfig(qconfig)

    def forward(self, x: Tensor) -> Tensor:
        """conv(x, fq(weight), fq32(bias))."""
        result: Tensor = self._conv_forward(x, *self.deployed())  # type: ignore[operator]
        return result

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


def arguments_of(conv: Any) -> dict[str, Any]:
    """The constructor's arguments of a convolution."""
    names = "in_channels out_channels kernel_size stride padding dilation groups padding_mode"
    if isinstance(conv, TRANSPOSED):
        names += " output_padding"
    return {name: getattr(conv, name) for name in names.split()} | {"bias": conv.bias is not None}


_FLOAT_CONVS: tuple[type[nn.Module], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)


def float_of(module: QatModule) -> nn.Module:
    """The float convolution that computes what `folded` says."""
    kind = next(kind for kind in _FLOAT_CONVS if isinstance(module, kind))
    weight, bias = module.folded()
    conv: Any = kind(**arguments_of(module) | {"bias": bias is not None})
    conv.weight = nn.Parameter(weight.detach())
    conv.bias = None if bias is None else nn.Parameter(bias.detach())
    conv.qconfig = module.qconfig
    return conv.train(module.training)  # type: ignore[no-any-return]


class Conv1d(QatConv, nn.Conv1d):
    """nn.Conv1d with a fake-quantized weight."""

    FLOAT = (nn.Conv1d,)


class Conv2d(QatConv, nn.Conv2d):
    """nn.Conv2d with a fake-quantized weight."""

    FLOAT = (nn.Conv2d,)


class Conv3d(QatConv, nn.Conv3d):
    """nn.Conv3d with a fake-quantized weight."""

    FLOAT = (nn.Conv3d,)
