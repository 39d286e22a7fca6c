"""A small vision transformer for 32x32 images (Dosovitskiy et al. 2020), patches of 4x4 pixels."""

from __future__ import annotations

import torch
from torch import nn

from models.cifar10 import load_sample

SIDE = 32  # pixels
PATCH = 4  # pixels a side
ALONG = SIDE // PATCH  # patches per row, and rows of them
PLACE_STD = 0.02  # of the learnt places before training


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V in `heads` heads of size d = width / heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, tokens, width) -> the same shape."""
        shape = (x.shape[0], x.shape[1], self.heads, x.shape[2] // self.heads)
        layers = (self.query, self.key, self.value)
        q, k, v = (layer(x).reshape(shape).transpose(1, 2) for layer in layers)
        weights = torch.softmax(q @ k.transpose(2, 3) * shape[3] ** -0.5, dim=-1)
        y: torch.Tensor = self.out((weights @ v).transpose(1, 2).reshape(x.shape))
        return y


class Block(nn.Module):
    """y = x + attention(norm(x)), then y + down(gelu(up(norm(y))))."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, tokens, width) -> the same shape."""
        x = x + self.attention(self.norm1(x))
        y: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return y


class Transformer(nn.Module):
    """A Linear for patches, a learnt place for each, `depth` blocks; their mean is classified."""

    def __init__(self, width: int, depth: int, heads: int, hidden: int, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Linear(3 * PATCH**2, width)
        self.place = nn.Parameter(PLACE_STD * torch.randn(ALONG**2, width))
        self.blocks = nn.Sequential(*(Block(width, heads, hidden) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32), pixel p given as (p - 128) / 64."""
        n = image.shape[0]
        qparams = image.reshape(n, 3, ALONG, PATCH, ALONG, PATCH).permute(0, 2, 4, 1, 3, 5)
        patches = qparams.reshape(n, ALONG**2, 3 * PATCH**2)
        x = self.blocks(self.embed(patches) + self.place)
        logits: torch.Tensor = self.head(self.norm(x).mean(1))
        return logits


def transformer() -> Transformer:
    """An untrained transformer for CIFAR-10: width 96, 5 blocks of 4 heads, hidden size 192."""
    return Transformer(96, 5, 4, 192)


def example_inputs() -> dict[str, torch.Tensor]:
    """Inputs that `onnxq export` traces these models with and checks them on: four images."""
    return {"image": torch.from_numpy(load_sample("calibration")[0][:4])}
