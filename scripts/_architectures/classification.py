"""Convolutional classifiers: ConvNeXt, EfficientNet, MobileNetV3, RegNet, ShuffleNetV2, and kin."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import (
    ImageNet,
    Made,
    Size,
    conv_bn,
    head,
    of_images,
)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7, LayerNorm, an MLP over channels, a learnt scale, a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(0.3 + 0.1 * torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        """(N, width, H, W) -> the same shape."""
        y: Tensor = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Two stages of two blocks, widths w and 2w."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.norm0 = nn.Conv2d(3, width, 4, 4), ChannelNorm(width)
        self.stage1 = nn.Sequential(ConvNextBlock(width), ConvNextBlock(width))
        self.norm1, self.down = ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2)
        self.stage2 = nn.Sequential(ConvNextBlock(2 * width), ConvNextBlock(2 * width))
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Logits (N, 10)."""
        x = self.stage1(self.norm0(self.stem(image)))
        x = self.stage2(self.down(self.norm1(x)))
        logits: Tensor = self.head(self.norm(x.mean((2, 3))))
        return logits


def convnext(size: Size) -> Made:
    """ConvNeXt-T, two of its stages (Liu et al. 2022)."""
    return of_images(ConvNext(96), 112) if size is Size.REAL else of_images(ConvNext(16), 32)


class SqueezeExcite(nn.Module):
    """Inverted bottleneck: expand, depthwise, a factor per channel from its mean, project."""

    def __init__(
        self,
        channels: tuple[int, int, int],
        kernel: int,
        stride: int,
        squeezed: int,
        act: type[nn.Module],
    ) -> None:
        super().__init__()
        before, inner, after = channels
        self.expand: nn.Module = nn.Identity()
        if inner != before:
            self.expand = conv_bn((before, inner), 1, act=act)
        self.depthwise = conv_bn((inner, inner), kernel, stride, groups=inner, act=act)
        self.reduce, self.excite = nn.Conv2d(inner, squeezed, 1), nn.Conv2d(squeezed, inner, 1)
        self.project = conv_bn((inner, after), 1, act=None)
        self.residual = stride == 1 and before == after

    def factor(self, mean: Tensor) -> Tensor:
        """In (0, 1), (N, inner, 1, 1): EfficientNet's SiLU and sigmoid."""
        return torch.sigmoid(self.excite(F.silu(self.reduce(mean))))

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, after, H / stride, W / stride)."""
        y: Tensor = self.depthwise(self.expand(x))
        y = y * self.factor(F.adaptive_avg_pool2d(y, 1))
        y = self.project(y)
        return x + y if self.residual else y


def efficientnet(size: Size) -> Made:
    """EfficientNet-B0, shortened (Tan and Le 2019): SiLU, depthwise, squeeze-and-excitation."""
    w = (32, 16, 24, 40, 80) if size is Size.REAL else (8, 8, 8, 12, 16)

    def block(before: int, after: int, expand: int, kernel: int, stride: int) -> nn.Module:
        channels = (before, before * expand, after)
        return SqueezeExcite(channels, kernel, stride, max(before // 4, 4), nn.SiLU)

    net = ImageNet(
        conv_bn((3, w[0]), 3, 2, act=nn.SiLU),
        block(w[0], w[1], 1, 3, 1),
        block(w[1], w[2], 6, 3, 2),
        block(w[2], w[2], 6, 3, 1),
        block(w[2], w[3], 6, 5, 2),
        block(w[3], w[3], 6, 5, 1),
        block(w[3], w[4], 6, 3, 2),
        block(w[4], w[4], 6, 3, 1),
        conv_bn((w[4], 4 * w[4]), 1, act=nn.SiLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(4 * w[4], 10),
    )
    return of_images(net, 112 if size is Size.REAL else 32)


class HardSqueezeExcite(SqueezeExcite):
    """The factor by relu and hard sigmoid."""

    def factor(self, mean: Tensor) -> Tensor:
        """In [0, 1], (N, inner, 1, 1)."""
        return F.hardsigmoid(self.excite(F.relu(self.reduce(mean))))


def mobilenetv3(size: Size) -> Made:
    """MobileNetV3-Small, shortened (Howard et al. 2019): HardSwish, squeeze-and-excitation."""
    f = 8 if size is Size.REAL else 2

    def block(
        before: int, inner: int, after: int, kernel: int, stride: int, act: type[nn.Module]
    ) -> nn.Module:
        squeezed = max(inner * f // 4, 4)
        return HardSqueezeExcite((before * f, inner * f, after * f), kernel, stride, squeezed, act)

    net = ImageNet(
        conv_bn((3, 2 * f), 3, 2, act=nn.Hardswish),
        block(2, 8, 3, 3, 2, nn.ReLU),
        block(3, 12, 3, 3, 1, nn.ReLU),
        block(3, 16, 5, 5, 2, nn.Hardswish),
        block(5, 24, 5, 5, 1, nn.Hardswish),
        conv_bn((5 * f, 24 * f), 1, act=nn.Hardswish),
        *head(24 * f, 32 * f),
        nn.Hardswish(),
        nn.Linear(32 * f, 10),
    )
    return of_images(net, 112 if size is Size.REAL else 32)


class GroupedBlock(nn.Module):
    """ResNeXt's bottleneck: 1x1, grouped 3x3, 1x1; squeeze-and-excitation or not; residual."""

    def __init__(
        self, before: int, after: int, group: int, stride: int, *, squeeze: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = conv_bn((before, after), 1)
        self.conv2 = conv_bn((after, after), 3, stride, groups=after // group)
        self.conv3 = conv_bn((after, after), 1, act=None)
        self.excite: nn.Module | None = None
        if squeeze:
            reduce, back = nn.Conv2d(after, after // 4, 1), nn.Conv2d(after // 4, after, 1)
            pool = nn.AdaptiveAvgPool2d(1)
            self.excite = nn.Sequential(pool, reduce, nn.ReLU(), back, nn.Sigmoid())
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.shortcut = conv_bn((before, after), 1, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, after, H / stride, W / stride)."""
        y = self.conv2(self.conv1(x))
        if self.excite is not None:
            y = y * self.excite(y)
        return F.relu(self.shortcut(x) + self.conv3(y))


def _regnet(size: Size, *, squeeze: bool) -> Made:
    real = size is Size.REAL
    widths, group = ((32, 64, 128, 256), 16) if real else ((8, 16, 16, 32), 4)
    blocks = []
    for before, after in itertools.pairwise(widths):
        blocks.append(GroupedBlock(before, after, group, 2, squeeze=squeeze))
        blocks.append(GroupedBlock(after, after, group, 1, squeeze=squeeze))
    net = ImageNet(conv_bn((3, widths[0]), 3, 2), *blocks, *head(widths[3]))
    return of_images(net, 112 if real else 32)


def regnet_x(size: Size) -> Made:
    """RegNetX, three stages of two blocks (Radosavovic et al. 2020): grouped convolutions."""
    return _regnet(size, squeeze=False)


def regnet_y(size: Size) -> Made:
    """RegNetY: the same with squeeze-and-excitation."""
    return _regnet(size, squeeze=True)


class ShuffleUnit(nn.Module):
    """Half of the channels (at stride 2, all) through three convolutions, then a shuffle."""

    def __init__(self, channels: int, stride: int, before: int) -> None:
        super().__init__()
        self.stride = stride
        half = channels // 2
        self.left: nn.Module = nn.Identity()
        if stride == 2:
            down = conv_bn((before, before), 3, 2, groups=before, act=None)
            self.left = nn.Sequential(down, conv_bn((before, half), 1))
        self.right = nn.Sequential(
            conv_bn((half if stride == 1 else before, half), 1),
            conv_bn((half, half), 3, stride, groups=half, act=None),
            conv_bn((half, half), 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, channels, H / stride, W / stride)."""
        left, right = x.chunk(2, 1) if self.stride == 1 else (x, x)
        y = torch.cat([self.left(left), self.right(right)], 1)
        n, channels, height, width = y.shape
        y = y.view(n, 2, channels // 2, height, width).transpose(1, 2)
        return y.reshape(n, channels, height, width)


def shufflenetv2(size: Size) -> Made:
    """ShuffleNetV2 x1, two of its stages (Ma et al. 2018)."""
    real = size is Size.REAL
    w = (24, 116, 232) if real else (8, 16, 32)
    units = [
        ShuffleUnit(after, stride, before if stride == 2 else after)
        for before, after in ((w[0], w[1]), (w[1], w[2]))
        for stride in (2, 1, 1)
    ]
    stem = [conv_bn((3, w[0]), 3, 2), nn.MaxPool2d(3, 2, 1)]
    net = ImageNet(*stem, *units, conv_bn((w[2], 2 * w[2]), 1), *head(2 * w[2]))
    return of_images(net, 112 if real else 32)


class DenseLayer(nn.Module):
    """BatchNorm, ReLU, 1x1, BatchNorm, ReLU, 3x3; what it adds stands beside its input."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(),
            nn.Conv2d(before, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, before + growth, H, W)."""
        return torch.cat([x, self.body(x)], 1)


def densenet(size: Size) -> Made:
    """DenseNet-121, two blocks of four layers (Huang et al. 2016): norm in front of activation."""
    growth, stem, side = (32, 64, 112) if size is Size.REAL else (4, 8, 32)
    first = stem + 4 * growth
    last = first // 2 + 4 * growth
    net = ImageNet(
        conv_bn((3, stem), 7, 2),
        nn.MaxPool2d(3, 2, 1),
        *[DenseLayer(stem + i * growth, growth) for i in range(4)],
        nn.BatchNorm2d(first),
        nn.ReLU(),
        nn.Conv2d(first, first // 2, 1, bias=False),
        nn.AvgPool2d(2),
        *[DenseLayer(first // 2 + i * growth, growth) for i in range(4)],
        nn.BatchNorm2d(last),
        nn.ReLU(),
        *head(last),
    )
    return of_images(net, side)


class Inception(nn.Module):
    """1x1; 1x1 and 3x3; 1x1 and 5x5; max pool and 1x1: side by side."""

    def __init__(self, before: int, w: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [
                conv_bn((before, w[0]), 1),
                nn.Sequential(conv_bn((before, w[1]), 1), conv_bn((w[1], w[2]), 3)),
                nn.Sequential(conv_bn((before, w[3]), 1), conv_bn((w[3], w[4]), 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), conv_bn((before, w[5]), 1)),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, sum of the branches, H, W)."""
        return torch.cat([branch(x) for branch in self.branches], 1)


def googlenet(size: Size) -> Made:
    """GoogLeNet, three of its inceptions (Szegedy et al. 2014), pools with ceil_mode."""
    f, side = (8, 112) if size is Size.REAL else (1, 40)
    net = ImageNet(
        conv_bn((3, 8 * f), 7, 2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        conv_bn((8 * f, 24 * f), 3),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Inception(24 * f, (8 * f, 12 * f, 16 * f, 2 * f, 4 * f, 4 * f)),
        Inception(32 * f, (16 * f, 16 * f, 24 * f, 4 * f, 12 * f, 8 * f)),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        Inception(60 * f, (24 * f, 12 * f, 26 * f, 2 * f, 6 * f, 8 * f)),
        *head(64 * f),
    )
    return of_images(net, side)
