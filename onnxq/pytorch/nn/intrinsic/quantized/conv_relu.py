"""Convolution and ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.conv import Conv1d, Conv2d, Conv3d

if TYPE_CHECKING:
    from torch import nn


class ConvReLU1d(Conv1d):
    """max(conv1d(x), 0) on its grid."""

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (intrinsic.ConvReLU1d, fused.ConvReLU1d, fused.ConvBnReLU1d)


class ConvReLU2d(Conv2d):
    """max(conv2d(x), 0) on its grid."""

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (intrinsic.ConvReLU2d, fused.ConvReLU2d, fused.ConvBnReLU2d)


class ConvReLU3d(Conv3d):
    """max(conv3d(x), 0) on its grid."""

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (intrinsic.ConvReLU3d, fused.ConvReLU3d, fused.ConvBnReLU3d)
