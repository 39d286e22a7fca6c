"""Convolution and ReLU in training."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F  # noqa: N812  # its usual name
from torch import Tensor, nn

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.qat.conv import QatConv


class QatConvReLU(QatConv):
    """What those of 1, 2 and 3 dimensions share; the arguments are the convolution's and a qconfig.

    Raises:
        QConfigError: no qconfig, or one that does not round weights.
    """

    FUSED: ClassVar[type[intrinsic.FusedModule]]

    def forward(self, x: Tensor) -> Tensor:
        """relu(conv(x, fq(weight), fq32(bias)))."""
        return F.relu(super().forward(x))

    def to_float(self) -> nn.Module:
        """The fused float module again, with the parameters as they are now."""
        fused = self.FUSED(super().to_float(), nn.ReLU()).train(self.training)
        fused.qconfig = self.qconfig  # type: ignore[assignment]  # modules take any attribute
        return fused


class ConvReLU1d(QatConvReLU, nn.Conv1d):
    """Conv1d and ReLU."""

    FLOAT = (intrinsic.ConvReLU1d,)
    FUSED = intrinsic.ConvReLU1d


class ConvReLU2d(QatConvReLU, nn.Conv2d):
    """Conv2d and ReLU."""

    FLOAT = (intrinsic.ConvReLU2d,)
    FUSED = intrinsic.ConvReLU2d


class ConvReLU3d(QatConvReLU, nn.Conv3d):
    """Conv3d and ReLU."""

    FLOAT = (intrinsic.ConvReLU3d,)
    FUSED = intrinsic.ConvReLU3d
