"""A vision transformer whose patches two strided convolutions cut (Xiao et al. 2021)."""

from __future__ import annotations

import torch
from torch import nn

from models.transformer import Block

SIDE = 32  # pixels
STRIDES = 4  # pixels a side that become one token
PLACE_STD = 0.02  # of the learnt places before training


class StemTransformer(nn.Module):
    """Conv, Relu, Conv; a learnt place for each token, `depth` blocks; their mean is classified."""

    def __init__(self, width: int, depth: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width // 2, 3, 2, 1)
        self.conv2 = nn.Conv2d(width // 2, width, 3, 2, 1)
        self.place = nn.Parameter(PLACE_STD * torch.randn((SIDE // STRIDES) ** 2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits (N, 10) of images (N, 3, 32, 32), pixel p given as (p - 128) / 64."""
        x = self.conv2(torch.relu(self.conv1(image))).flatten(2).transpose(1, 2)
        logits: torch.Tensor = self.head(self.norm(self.blocks(x + self.place)).mean(1))
        return logits


def vit_stem() -> StemTransformer:
    """An untrained one for CIFAR-10: width 128, 4 blocks of 4 heads, hidden size 256."""
    return StemTransformer(128, 4, 4, 256)
