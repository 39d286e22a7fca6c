"""Linear layer and ReLU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from onnxq.pytorch.nn import intrinsic
from onnxq.pytorch.nn.quantized.linear import Linear

if TYPE_CHECKING:
    from torch import nn


class LinearReLU(Linear):
    """max(linear(x), 0) on its grid."""

    def computed(self, x: torch.Tensor) -> torch.Tensor:
        """The sums above 0, in float32."""
        return torch.relu(super().computed(x))

    @classmethod
    def accepted(cls) -> tuple[type[nn.Module], ...]:
        """Types that from_float takes."""
        from onnxq.pytorch.nn.intrinsic import qat as fused  # which imports nn.quantized

        return (intrinsic.LinearReLU, fused.LinearReLU)
