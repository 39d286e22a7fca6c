"""Convolutions with the batch norm or ReLU behind them, in training; transposed ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.intrinsic.qat.batch_norm import WithBatchNorm
from onnxq.pytorch.nn.qat.conv import (
    Convolution,
    QatConv,
    QatConvTranspose,
    Sizes,
    TransposedConvolution,
)

if TYPE_CHECKING:
    from onnxq.qconfig import QConfig


class QatConvBn(WithBatchNorm, Convolution):
    """Convolutions with batch norm; the arguments are the convolution's, then batch norm's.

    freeze_bn: starts with frozen statistics.

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
        bias: bool | None = None,
        padding_mode: str = "zeros",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        qconfig: QConfig | None = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*sizes, bool(bias), padding_mode)
        self.set_qconfig(qconfig)
        self.make_batch_norm(out_channels, eps, momentum, freeze_bn)


class QatConvTransposeBn(WithBatchNorm, TransposedConvolution):
    """Transposed convolutions with batch norm; the layer's arguments, then batch norm's.

    freeze_bn: starts with frozen statistics.

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
        bias: bool | None = None,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        freeze_bn: bool = False,
        qconfig: QConfig | None = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, output_padding, groups)
        super().__init__(*sizes, bool(bias), dilation, padding_mode)
        self.set_qconfig(qconfig)
        self.make_batch_norm(out_channels, eps, momentum, freeze_bn)


class ConvReLU1d(QatConv, nn.Conv1d):
    """Conv1d and ReLU."""

    float_type = intrinsic.ConvReLU1d


class ConvReLU2d(QatConv, nn.Conv2d):
    """Conv2d and ReLU."""

    float_type = intrinsic.ConvReLU2d


class ConvReLU3d(QatConv, nn.Conv3d):
    """Conv3d and ReLU."""

    float_type = intrinsic.ConvReLU3d


class ConvBn1d(QatConvBn, nn.Conv1d):
    """Conv1d and BatchNorm1d."""

    float_type = intrinsic.ConvBn1d


class ConvBn2d(QatConvBn, nn.Conv2d):
    """Conv2d and BatchNorm2d."""

    float_type = intrinsic.ConvBn2d


class ConvBn3d(QatConvBn, nn.Conv3d):
    """Conv3d and BatchNorm3d."""

    float_type = intrinsic.ConvBn3d


class ConvBnReLU1d(QatConvBn, nn.Conv1d):
    """Conv1d, BatchNorm1d and ReLU."""

    float_type = intrinsic.ConvBnReLU1d


class ConvBnReLU2d(QatConvBn, nn.Conv2d):
    """Conv2d, BatchNorm2d and ReLU."""

    float_type = intrinsic.ConvBnReLU2d


class ConvBnReLU3d(QatConvBn, nn.Conv3d):
    """Conv3d, BatchNorm3d and ReLU."""

    float_type = intrinsic.ConvBnReLU3d


class ConvTransposeReLU1d(QatConvTranspose, nn.ConvTranspose1d):
    """ConvTranspose1d and ReLU."""

    float_type = intrinsic.ConvTransposeReLU1d


class ConvTransposeReLU2d(QatConvTranspose, nn.ConvTranspose2d):
    """ConvTranspose2d and ReLU."""

    float_type = intrinsic.ConvTransposeReLU2d


class ConvTransposeReLU3d(QatConvTranspose, nn.ConvTranspose3d):
    """ConvTranspose3d and ReLU."""

    float_type = intrinsic.ConvTransposeReLU3d


class ConvTransposeBn1d(QatConvTransposeBn, nn.ConvTranspose1d):
    """ConvTranspose1d and BatchNorm1d."""

    float_type = intrinsic.ConvTransposeBn1d


class ConvTransposeBn2d(QatConvTransposeBn, nn.ConvTranspose2d):
    """ConvTranspose2d and BatchNorm2d."""

    float_type = intrinsic.ConvTransposeBn2d


class ConvTransposeBn3d(QatConvTransposeBn, nn.ConvTranspose3d):
    """ConvTranspose3d and BatchNorm3d."""

    float_type = intrinsic.ConvTransposeBn3d


class ConvTransposeBnReLU1d(QatConvTransposeBn, nn.ConvTranspose1d):
    """ConvTranspose1d, BatchNorm1d and ReLU."""

    float_type = intrinsic.ConvTransposeBnReLU1d


class ConvTransposeBnReLU2d(QatConvTransposeBn, nn.ConvTranspose2d):
    """ConvTranspose2d, BatchNorm2d and ReLU."""

    float_type = intrinsic.ConvTransposeBnReLU2d


class ConvTransposeBnReLU3d(QatConvTransposeBn, nn.ConvTranspose3d):
    """ConvTranspose3d, BatchNorm3d and ReLU."""

    float_type = intrinsic.ConvTransposeBnReLU3d
