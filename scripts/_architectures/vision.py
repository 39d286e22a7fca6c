"""Transformers and MLPs on images: ViT, Swin, MLP-Mixer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import Made, Size, images
from scripts._architectures.attention import Attention, Block, ExplicitAttention, randn_parameter


class VisionTransformer(nn.Module):
    """A convolution cuts patches; class token, learnt places; the class token is classified."""

    def __init__(
        self, qparams: int, patch: int, width: int, depth: int, attention: type[Attention]
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.token = randn_parameter(0.2, 1, 1, width)
        self.places = randn_parameter(0.2, 1, qparams**2 + 1, width)
        self.blocks = nn.Sequential(*[Block(width, 3, attention) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 3, grid * patch, grid * patch)."""
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        logits: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return logits


def _vit(size: Size, attention: type[Attention]) -> Made:
    if size is Size.REAL:
        return (
            VisionTransformer(7, 16, 192, 4, attention),
            lambda n, seed: {"image": images(n, 3, 112, seed)},
        )
    return (
        VisionTransformer(4, 8, 48, 2, attention),
        lambda n, seed: {"image": images(n, 3, 32, seed)},
    )


def vit(size: Size) -> Made:
    """ViT-Tiny (Dosovitskiy et al. 2020), attention written out."""
    return _vit(size, ExplicitAttention)


def vit_sdpa(size: Size) -> Made:
    """ViT-Tiny with scaled_dot_product_attention, as in timm and torchvision today."""
    return _vit(size, Attention)


class WindowBlock(nn.Module):
    """Attention in windows of `window` x `window`, shifted by half of one, with a place bias."""

    index: Tensor
    mask: Tensor

    def __init__(self, width: int, heads: int, window: int, shift: int, side: int) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.norm2 = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.bias = randn_parameter(0.1, (2 * window - 1) ** 2, heads)
        steps = torch.arange(window)
        at = torch.stack(torch.meshgrid(steps, steps, indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", apart[..., 0] * (2 * window - 1) + apart[..., 1])
        if shift:
            self.register_buffer("mask", self._mask(side))

    def _mask(self, side: int) -> Tensor:
        """(windows, window^2, window^2): -100 between places that the roll made neighbours."""
        parts = (
            slice(0, -self.window),
            slice(-self.window, -self.shift),
            slice(-self.shift, None),
        )
        region = torch.zeros(1, side, side, 1)
        for i, rows in enumerate(parts):
            for j, columns in enumerate(parts):
                region[:, rows, columns] = 3 * i + j
        flat = self._windows(region).reshape(-1, self.window**2)
        return (flat[:, None] - flat[:, :, None]).ne(0).float() * -100

    def _windows(self, x: Tensor) -> Tensor:
        n, height, width, channels = x.shape
        w = self.window
        x = x.view(n, height // w, w, width // w, w, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)

    def _attend(self, y: Tensor) -> Tensor:
        places, width = y.shape[1:]
        y = self.qkv(y).reshape(-1, places, 3, self.heads, width // self.heads)
        q, k, v = y.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (width // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.bias[self.index.view(-1)].view(places, places, self.heads)
        scores = scores + bias.permute(2, 0, 1)
        if self.shift:
            split = scores.view(-1, self.mask.shape[0], self.heads, places, places)
            scores = (split + self.mask[None, :, None]).view(-1, self.heads, places, places)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, places, width)
        out: Tensor = self.out(y)
        return out

    def forward(self, x: Tensor) -> Tensor:
        """(N, side, side, width) -> the same shape."""
        _, height, width, channels = x.shape
        w = self.window
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self._attend(self._windows(y)).view(-1, height // w, width // w, w, w, channels)
        y = y.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, channels)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        z: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return z


class PatchMerging(nn.Module):
    """Four neighbours side by side, then half as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H, W, width) -> (N, H/2, W/2, 2 width)."""
        corners = [x[:, i::2, j::2] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
        y: Tensor = self.reduce(self.norm(torch.cat(corners, -1)))
        return y


class SwinTransformer(nn.Module):
    """Two stages of two blocks each, the second block shifted."""

    def __init__(self, side: int, window: int, width: int, heads: int) -> None:
        super().__init__()
        self.patch, self.norm0 = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        self.stage1 = self._stage(width, heads, window, side)
        self.merge = PatchMerging(width)
        self.stage2 = self._stage(2 * width, 2 * heads, window, side // 2)
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 10)

    @staticmethod
    def _stage(width: int, heads: int, window: int, side: int) -> nn.Sequential:
        shifts = (0, window // 2)
        return nn.Sequential(*[WindowBlock(width, heads, window, shift, side) for shift in shifts])

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 3, 4 side, 4 side)."""
        x = self.norm0(self.patch(image).permute(0, 2, 3, 1))
        x = self.stage2(self.merge(self.stage1(x)))
        logits: Tensor = self.head(self.norm(x).mean((1, 2)))
        return logits


def swin(size: Size) -> Made:
    """Swin-T, two of its stages (Liu et al. 2021): windows, shifts, relative places."""
    if size is Size.REAL:
        return (
            SwinTransformer(28, 7, 96, 3),
            lambda n, seed: {"image": images(n, 3, 112, seed)},
        )
    return SwinTransformer(8, 4, 32, 2), lambda n, seed: {"image": images(n, 3, 32, seed)}


class MlpMixer(nn.Module):
    """In turns an MLP over patches, with transposes around it, and one over channels."""

    def __init__(self, qparams: int, patch: int, width: int, depth: int) -> None:
        super().__init__()
        places = qparams**2
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.blocks = nn.ModuleList([self._block(places, width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    @staticmethod
    def _block(places: int, width: int) -> nn.ModuleList:
        between = [
            nn.LayerNorm(width),
            nn.Linear(places, 2 * places),
            nn.Linear(2 * places, places),
        ]
        within = [nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]
        return nn.ModuleList([*between, *within])

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 10) of images (N, 3, grid * patch, grid * patch)."""
        x = self.patch(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            norm1, up1, down1, norm2, up2, down2 = block
            x = x + down1(F.gelu(up1(norm1(x).transpose(1, 2)))).transpose(1, 2)
            x = x + down2(F.gelu(up2(norm2(x))))
        logits: Tensor = self.head(self.norm(x).mean(1))
        return logits


def mixer(size: Size) -> Made:
    """MLP-Mixer (Tolstikhin et al. 2021)."""
    if size is Size.REAL:
        return MlpMixer(7, 16, 256, 4), lambda n, seed: {"image": images(n, 3, 112, seed)}
    return MlpMixer(4, 8, 48, 2), lambda n, seed: {"image": images(n, 3, 32, seed)}
