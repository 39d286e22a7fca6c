"""Transposed convolution and ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.conv_transpose import (
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


class ConvTransposeReLU1d(ConvTranspose1d):
    """max(conv_transpose1d(x), 0) on its grid."""

    def computed(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x, output_size))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (
            intrinsic.ConvTransposeReLU1d,
            fused.ConvTransposeReLU1d,
            fused.ConvTransposeBnReLU1d,
        )


class ConvTransposeReLU2d(ConvTranspose2d):
    """max(conv_transpose2d(x), 0) on its grid."""

    def computed(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x, output_size))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (
            intrinsic.ConvTransposeReLU2d,
            fused.ConvTransposeReLU2d,
            fused.ConvTransposeBnReLU2d,
        )


class ConvTransposeReLU3d(ConvTranspose3d):
    """max(conv_transpose3d(x), 0) on its grid."""

    def computed(self, x: torch.Tensor, output_size: Sequence[int] | None = None) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x, output_size))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (
            intrinsic.ConvTransposeReLU3d,
            fused.ConvTransposeReLU3d,
            fused.ConvTransposeBnReLU3d,
        )
