"""Networks of several kinds in one: a conformer, a detector with queries, a gated ViT."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # its name everywhere

from scripts._architectures._parts import Feeds, Size, conv_bn, images, initialize, settle, signal
from scripts._architectures.attention import Attention, Block, randn_parameter
from scripts._defaults.case import exported

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from scripts._defaults.case import Case

SETTLING = 16, 7  # samples and seed of what gives batch norms their statistics


class ConformerBlock(nn.Module):
    """Half an MLP, attention, a gated depthwise convolution over steps, half an MLP."""

    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3, self.norm4, self.norm5 = (
            nn.LayerNorm(width) for _ in range(5)
        )
        self.up1, self.down1 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.up2, self.down2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.attention = Attention(width, heads)
        self.gate = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.out = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, width) -> the same shape."""
        x = x + 0.5 * self.down1(F.silu(self.up1(self.norm1(x))))
        x = x + self.attention(self.norm2(x))
        y = F.glu(self.gate(self.norm3(x).transpose(1, 2)), 1)
        x = x + self.out(F.silu(self.batch_norm(self.depthwise(y)))).transpose(1, 2)
        x = x + 0.5 * self.down2(F.silu(self.up2(self.norm4(x))))
        z: Tensor = self.norm5(x)
        return z


class Conformer(nn.Module):
    """Two convolutions that halve bands and steps, blocks, logarithms of shares per step."""

    def __init__(self, channels: int, bands: int, width: int, depth: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, 2, 1)
        self.conv2 = nn.Conv2d(channels, channels, 3, 2, 1)
        self.enter = nn.Linear(channels * bands // 4, width)
        self.blocks = nn.Sequential(*[ConformerBlock(width, 4, 15) for _ in range(depth)])
        self.head = nn.Linear(width, 100)

    def forward(self, mel: Tensor) -> Tensor:
        """(N, steps / 4, 100) of spectrograms (N, steps, bands)."""
        x = F.relu(self.conv2(F.relu(self.conv1(mel[:, None])))).permute(0, 2, 1, 3)
        x = self.enter(x.flatten(2))
        return F.log_softmax(self.head(self.blocks(x)), -1)


class QueryDetector(nn.Module):
    """Convolutions with SiLU, a block over the coarsest, learnt queries of the fused map."""

    def __init__(self, channels: int, width: int, queries: int) -> None:
        super().__init__()
        c = channels
        self.down = nn.Sequential(
            conv_bn((3, c), 3, 2, act=nn.SiLU), _halving(c, 2 * c), _halving(2 * c, 4 * c)
        )
        self.coarse = _halving(4 * c, 8 * c)
        self.enter_fine, self.enter_coarse = nn.Conv2d(4 * c, width, 1), nn.Conv2d(8 * c, width, 1)
        self.block = Block(width, 4)
        self.fuse = conv_bn((2 * width, width), 3, act=nn.SiLU)
        self.queries = randn_parameter(1.0, 1, queries, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.box = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))
        self.kind = nn.Linear(width, 20)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes (N, queries, 4) in (0, 1) and logits (N, queries, 20) of images (N, 3, H, W)."""
        fine = self.down(image)
        coarse = self.enter_coarse(self.coarse(fine))
        n, width, height, columns = coarse.shape
        coarse = self.block(coarse.flatten(2).transpose(1, 2)).transpose(1, 2)
        coarse = coarse.reshape(n, width, height, columns)
        wide = F.interpolate(coarse, scale_factor=2.0)
        seen = self.fuse(torch.cat([wide, self.enter_fine(fine)], 1)).flatten(2).transpose(1, 2)

        def split(y: Tensor) -> Tensor:
            return y.reshape(n, -1, 4, width // 4).transpose(1, 2)

        x = self.queries.expand(n, -1, -1)
        scores = split(self.query(x)) @ split(self.key(seen)).transpose(-1, -2)
        y = (scores / math.sqrt(width // 4)).softmax(-1) @ split(self.value(seen))
        x = self.norm1(x + self.out(y.transpose(1, 2).reshape(n, -1, width)))
        x = self.norm2(x + self.shrink(F.relu(self.up(x))))
        return torch.sigmoid(self.box(x)), self.kind(x)


def _halving(before: int, after: int) -> nn.Sequential:
    first = conv_bn((before, after), 3, 2, act=nn.SiLU)
    return nn.Sequential(first, conv_bn((after, after), 3, act=nn.SiLU))


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + 1e-6) * gain, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class GatedBlock(nn.Module):
    """x + attention(norm(x)), then y + down(silu(gate(norm(y))) * up(norm(y))): SwiGLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, width) -> the same shape."""
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        z: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return z


class GatedTransformer(nn.Module):
    """A convolution cuts patches of 8 pixels; blocks; their mean is classified."""

    def __init__(self, width: int, heads: int, depth: int, qparams: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.places = randn_parameter(0.2, 1, qparams**2, width)
        self.blocks = nn.Sequential(*[GatedBlock(width, heads) for _ in range(depth)])
        self.norm, self.head = RmsNorm(width), nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 3, 8 grid, 8 grid)."""
        x = self.patch(image).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return logits


def _settled(module: nn.Module, feeds: Callable[[int, int], Feeds], folder: Path) -> Case:
    initialize(module)
    settle(module, feeds(*SETTLING))
    return exported((module, feeds), folder / "float.onnx")


def conformer(size: Size, folder: Path) -> Case:
    """Conformer, three of its blocks (Gulati et al. 2020)."""
    channels, bands, width, depth, steps = (
        (64, 80, 256, 3, 200) if size is Size.REAL else (8, 16, 32, 1, 32)
    )

    def feeds(samples: int, seed: int) -> Feeds:
        return {"mel": signal(samples, bands, steps, seed).transpose(1, 2).contiguous()}

    torch.manual_seed(1)
    return _settled(Conformer(channels, bands, width, depth), feeds, folder)


def query_detector(size: Size, folder: Path) -> Case:
    """Convolutions and a transformer, boxes from queries, as in RT-DETR (Zhao et al. 2023)."""
    channels, width, queries, side = (32, 128, 50, 160) if size is Size.REAL else (4, 16, 5, 32)

    def feeds(samples: int, seed: int) -> Feeds:
        return {"image": images(samples, 3, side, seed)}

    torch.manual_seed(1)
    return _settled(QueryDetector(channels, width, queries), feeds, folder)


def gated_vit(size: Size, folder: Path) -> Case:
    """A ViT with RMSNorm and SwiGLU, as recent ones have them."""
    width, heads, depth, qparams = (192, 3, 4, 8) if size is Size.REAL else (32, 2, 1, 4)

    def feeds(samples: int, seed: int) -> Feeds:
        return {"image": images(samples, 3, 8 * qparams, seed)}

    torch.manual_seed(1)
    return _settled(GatedTransformer(width, heads, depth, qparams), feeds, folder)
