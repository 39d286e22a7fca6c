"""Convolution and batch norm, and a ReLU behind them, in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.errors import ModelError
from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import BatchNorm, WithBatchNorm
from onnxq.pytorch.nn.qat.conv import arguments_of, float_of

if TYPE_CHECKING:
    from onnxq.qconfig import QConfig


class QatConvBn(WithBatchNorm):
    """What those of 1, 2 and 3 dimensions share; the arguments are the convolution's, batch norm's.

    freeze_bn: starts with frozen statistics.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    BATCH_NORM: ClassVar[type[nn.Module]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: str | int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool | None = None,
        padding_mode: str = "zeros",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        qconfig: QConfig | None = None,
    ) -> None:
        shape: dict[str, Any] = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "kernel_size": kernel_size,
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "bias": bool(bias),
            "padding_mode": padding_mode,
        }
        super().__init__(**shape)
        self.set_qconfig(qconfig)
        make: Any = self.BATCH_NORM
        self.set_batch_norm(make(out_channels, eps, momentum), freeze_bn)

    def op(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:  # noqa: ARG002
        """The convolution."""
        result: Tensor = self._conv_forward(x, weight, bias)  # type: ignore[operator]
        return result

    def forward(self, x: Tensor) -> Tensor:
        """The convolution with batch norm."""
        return self.pre_activation(x)

    @classmethod
    def from_float(cls, mod: nn.Module) -> Self:
        """The module with the parameters of a fused float one that has a qconfig.

        Raises:
            ModelError: another type of module.
            QConfigError: no qconfig.
        """
        qconfig = cls.check_float(mod)
        parts: Any = mod
        conv, bn = parts[0], parts[1]
        made = cls(**arguments_of(conv), qconfig=qconfig)
        made.take(conv.weight, conv.bias)
        made.bn = check_batch_norm(bn)
        return made.train(mod.training)

    def to_float(self) -> nn.Module:
        """The float convolution with batch norm folded in; with a ReLU, the fused module."""
        return float_of(self)


def check_batch_norm(bn: BatchNorm) -> BatchNorm:
    """The batch norm, if it can be folded.

    Raises:
        ModelError: it has no running statistics, or no weight and bias.
    """
    if bn.running_var is None or bn.running_mean is None or not bn.affine:
        raise ModelError(
            f"{bn}: wanted affine=True and track_running_stats=True; what is deployed is the "
            "convolution with running statistics, weight and bias folded in."
        )
    bn.__dict__.pop("qconfig", None)  # it is quantized with the layer, not by itself
    return bn


class ConvBn1d(QatConvBn, nn.Conv1d):
    """Conv1d and BatchNorm1d."""

    FLOAT = (intrinsic.ConvBn1d,)
    BATCH_NORM = nn.BatchNorm1d


class ConvBn2d(QatConvBn, nn.Conv2d):
    """Conv2d and BatchNorm2d."""

    FLOAT = (intrinsic.ConvBn2d,)
    BATCH_NORM = nn.BatchNorm2d


class ConvBn3d(QatConvBn, nn.Conv3d):
    """Conv3d and BatchNorm3d."""

    FLOAT = (intrinsic.ConvBn3d,)
    BATCH_NORM = nn.BatchNorm3d


class QatConvBnReLU(QatConvBn):
    """Convolution, batch norm and ReLU."""

    FUSED: ClassVar[type[intrinsic.FusedModule]]

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the convolution with batch norm."""
        return F.relu(self.pre_activation(x))

    def to_float(self) -> nn.Module:
        """The fused float module, batch norm folded into the convolution."""
        fused = self.FUSED(float_of(self), nn.ReLU()).train(self.training)
        fused.qconfig = self.qconfig  # type: ignore[assignment]  # modules take any attribute
        return fused


class ConvBnReLU1d(QatConvBnReLU, nn.Conv1d):
    """Conv1d, BatchNorm1d and ReLU."""

    FLOAT = (intrinsic.ConvBnReLU1d,)
    BATCH_NORM = nn.BatchNorm1d
    FUSED = intrinsic.ConvReLU1d


class ConvBnReLU2d(QatConvBnReLU, nn.Conv2d):
    """Conv2d, BatchNorm2d and ReLU."""

    FLOAT = (intrinsic.ConvBnReLU2d,)
    BATCH_NORM = nn.BatchNorm2d
    FUSED = intrinsic.ConvReLU2d


class ConvBnReLU3d(QatConvBnReLU, nn.Conv3d):
    """Conv3d, BatchNorm3d and ReLU."""

    FLOAT = (intrinsic.ConvBnReLU3d,)
    BATCH_NORM = nn.BatchNorm3d
    FUSED = intrinsic.ConvReLU3d
