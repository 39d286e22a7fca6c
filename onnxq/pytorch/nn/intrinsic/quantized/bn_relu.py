"""Batch norm and ReLU."""

from __future__ import annotations

import torch
from torch import nn

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.normalization import BatchNorm2d, BatchNorm3d


class BNReLU2d(BatchNorm2d):
    """max(batch norm(x), 0) on its grid."""

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """In float32."""
        return torch.relu(super().computed(x))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        return (intrinsic.BNReLU2d,)


class BNReLU3d(BatchNorm3d):
    """max(batch norm(x), 0) on its grid."""

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """In float32."""
        return torch.relu(super().computed(x))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        return (intrinsic.BNReLU3d,)
