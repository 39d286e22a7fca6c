"""Transposed convolution with batch norm or ReLU, in training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm
from onnxq.pytorch.nn.intrinsic.qat.conv_bn import check_batch_norm
from onnxq.pytorch.nn.qat.conv import arguments_of, float_of
from onnxq.pytorch.nn.qat.conv_transpose import QatConvTranspose, Transposed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.qconfig import QConfig


class QatConvTransposeReLU(QatConvTranspose):
    """What those of 1, 2 and 3 dimensions share; the layer's arguments and a qconfig.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    FUSED: ClassVar[type[intrinsic.FusedModule]]

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """relu(conv_transpose(x, fq(weight), fq32(bias)))."""
        return F.relu(super().forward(x, output_size))

    def to_float(self) -> nn.Module:
        """The fused float module again, with the parameters as they are now."""
        return _with_relu(self, self.FUSED)


class ConvTransposeReLU1d(QatConvTransposeReLU, nn.ConvTranspose1d):
    """ConvTranspose1d and ReLU."""

    FLOAT = (intrinsic.ConvTransposeReLU1d,)
    FUSED = intrinsic.ConvTransposeReLU1d


class ConvTransposeReLU2d(QatConvTransposeReLU, nn.ConvTranspose2d):
    """ConvTranspose2d and ReLU."""

    FLOAT = (intrinsic.ConvTransposeReLU2d,)
    FUSED = intrinsic.ConvTransposeReLU2d


class ConvTransposeReLU3d(QatConvTransposeReLU, nn.ConvTranspose3d):
    """ConvTranspose3d and ReLU."""

    FLOAT = (intrinsic.ConvTransposeReLU3d,)
    FUSED = intrinsic.ConvTransposeReLU3d


class QatConvTransposeBn(Transposed, WithBatchNorm):
    """What those of 1, 2 and 3 dimensions share; the layer's arguments, then batch norm's.

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
        padding: int | tuple[int, ...] = 0,
        output_padding: int | tuple[int, ...] = 0,
        groups: int = 1,
        bias: bool | None = None,
        dilation: int | tuple[int, ...] = 1,
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
            "output_padding": output_padding,
            "groups": groups,
            "bias": bool(bias),
            "dilation": dilation,
            "padding_mode": padding_mode,
        }
        super().__init__(**shape)
        self.set_qconfig(qconfig)
        make: Any = self.BATCH_NORM
        self.set_batch_norm(make(out_channels, eps, momentum), freeze_bn)

    def op(self, x: Tensor, weight: Tensor, bias: Tensor | None, *others: Any) -> Tensor:
        """The transposed convolution; `others`: output_size."""
        return self.convolved(x, weight, bias, *others)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """The transposed convolution with batch norm."""
        return self.pre_activation(x, output_size)

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
        """The float layer with batch norm folded in; with a ReLU, the fused module."""
        return float_of(self)


class ConvTransposeBn1d(QatConvTransposeBn, nn.ConvTranspose1d):
    """ConvTranspose1d and BatchNorm1d."""

    FLOAT = (intrinsic.ConvTransposeBn1d,)
    BATCH_NORM = nn.BatchNorm1d


class ConvTransposeBn2d(QatConvTransposeBn, nn.ConvTranspose2d):
    """ConvTranspose2d and BatchNorm2d."""

    FLOAT = (intrinsic.ConvTransposeBn2d,)
    BATCH_NORM = nn.BatchNorm2d


class ConvTransposeBn3d(QatConvTransposeBn, nn.ConvTranspose3d):
    """ConvTranspose3d and BatchNorm3d."""

    FLOAT = (intrinsic.ConvTransposeBn3d,)
    BATCH_NORM = nn.BatchNorm3d


class QatConvTransposeBnReLU(QatConvTransposeBn):
    """Transposed convolution, batch norm and ReLU."""

    FUSED: ClassVar[type[intrinsic.FusedModule]]

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """ReLU of the transposed convolution with batch norm."""
        return F.relu(self.pre_activation(x, output_size))

    def to_float(self) -> nn.Module:
        """The fused float module, batch norm folded into the layer."""
        return _with_relu(self, self.FUSED)


class ConvTransposeBnReLU1d(QatConvTransposeBnReLU, nn.ConvTranspose1d):
    """ConvTranspose1d, BatchNorm1d and ReLU."""

    FLOAT = (intrinsic.ConvTransposeBnReLU1d,)
    BATCH_NORM = nn.BatchNorm1d
    FUSED = intrinsic.ConvTransposeReLU1d


class ConvTransposeBnReLU2d(QatConvTransposeBnReLU, nn.ConvTranspose2d):
    """ConvTranspose2d, BatchNorm2d and ReLU."""

    FLOAT = (intrinsic.ConvTransposeBnReLU2d,)
    BATCH_NORM = nn.BatchNorm2d
    FUSED = intrinsic.ConvTransposeReLU2d


class ConvTransposeBnReLU3d(QatConvTransposeBnReLU, nn.ConvTranspose3d):
    """ConvTranspose3d, BatchNorm3d and ReLU."""

    FLOAT = (intrinsic.ConvTransposeBnReLU3d,)
    BATCH_NORM = nn.BatchNorm3d
    FUSED = intrinsic.ConvTransposeReLU3d


def _with_relu(module: Transposed, fused: type[intrinsic.FusedModule]) -> nn.Module:
    made = fused(float_of(module), nn.ReLU()).train(module.training)
    made.qconfig = module.qconfig  # type: ignore[assignment]  # modules take any attribute
    return made
