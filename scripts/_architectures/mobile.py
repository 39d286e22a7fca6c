"""Convolutional networks for phones: shuffled groups, depthwise blocks, hard-swish written out."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import (
    Feeds,
    ImageNet,
    Made,
    Size,
    conv_bn,
    head,
    images,
    of_images,
)


def shuffled(x: Tensor, groups: int) -> Tensor:
    """Channels of (N, C, H, W) in another order: the i-th of every group, then the next."""
    n, channels, height, width = x.shape
    y = x.view(n, groups, channels // groups, height, width).transpose(1, 2)
    return y.reshape(n, channels, height, width)


class GroupedShuffleUnit(nn.Module):
    """Grouped 1x1, shuffle, depthwise 3x3, grouped 1x1; added to x, or beside its average."""

    def __init__(self, before: int, after: int, groups: int, stride: int, first: int) -> None:
        super().__init__()
        self.groups, self.stride = groups, stride
        inner, added = after // 4, after - (before if stride == 2 else 0)
        self.reduce = conv_bn((before, inner), 1, groups=first)
        self.depthwise = conv_bn((inner, inner), 3, stride, groups=inner, act=None)
        self.expand = conv_bn((inner, added), 1, groups=groups, act=None)

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, after, H / stride, W / stride)."""
        y = self.expand(self.depthwise(shuffled(self.reduce(x), self.groups)))
        if self.stride == 1:
            return F.relu(x + y)
        return F.relu(torch.cat([F.avg_pool2d(x, 3, 2, 1), y], 1))


def shufflenet(size: Size) -> Made:
    """ShuffleNet 1x with three groups, whole (Zhang et al. 2017)."""
    real = size is Size.REAL
    widths, repeats = ((24, 240, 480, 960), (4, 8, 4)) if real else ((12, 24, 48, 96), (2, 2, 2))
    units = []
    for stage, (before, after) in enumerate(itertools.pairwise(widths)):
        first = 3 if stage else 1  # of few channels, no groups
        units.append(GroupedShuffleUnit(before, after, 3, 2, first))
        units += [GroupedShuffleUnit(after, after, 3, 1, 3) for _ in range(repeats[stage] - 1)]
    stem = [conv_bn((3, widths[0]), 3, 2), nn.MaxPool2d(3, 2, 1)]
    return of_images(ImageNet(*stem, *units, *head(widths[-1])), 224 if real else 32)


def hard_swish(x: Tensor) -> Tensor:
    """Hard swish, x * clip(x + 3, 0, 6) / 6, as one operator each."""
    return x * F.relu6(x + 3) / 6


class WrittenOutBlock(nn.Module):
    """MobileNetV3's block with its activations written out, and strides of two axes."""

    def __init__(
        self, widths: tuple[int, int, int], kernel: int, stride: tuple[int, int], *, hard: bool
    ) -> None:
        super().__init__()
        before, inner, after = widths
        self.act = hard_swish if hard else F.relu
        self.expand = conv_bn((before, inner), 1, act=None)
        spatial = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False)
        self.depthwise = nn.Sequential(spatial, nn.BatchNorm2d(inner))
        self.reduce = nn.Conv2d(inner, max(inner // 4, 4), 1)
        self.excite = nn.Conv2d(max(inner // 4, 4), inner, 1)
        self.project = conv_bn((inner, after), 1, act=None)
        self.residual = stride == (1, 1) and before == after

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, after, H / stride, W / stride)."""
        y: Tensor = self.act(self.depthwise(self.act(self.expand(x))))
        factor = self.excite(F.relu(self.reduce(F.adaptive_avg_pool2d(y, 1))))
        y = self.project(y * torch.clamp(0.2 * factor + 0.5, 0, 1))
        return x + y if self.residual else y


class WrittenOutStem(nn.Module):
    """3x3 convolution, batch norm, hard-swish."""

    def __init__(self, before: int, after: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = conv_bn((before, after), kernel, stride, act=None)

    def forward(self, x: Tensor) -> Tensor:
        """(N, before, H, W) -> (N, after, H / stride, W / stride)."""
        return hard_swish(self.conv(x))


def text_direction(size: Size) -> Made:
    """PP-OCR's classifier of a line's direction: MobileNetV3-Small x0.35, 48 by 192 (Du 2020)."""
    rows = [
        (8, 8, 3, (1, 1), False),
        (24, 8, 3, (2, 1), False),
        (32, 8, 3, (1, 1), False),
        (32, 16, 5, (2, 1), True),
        (88, 16, 5, (1, 1), True),
        (40, 16, 5, (1, 1), True),
        (104, 32, 5, (2, 1), True),
        (200, 32, 5, (1, 1), True),
    ]
    if size is Size.TINY:
        rows = rows[1:5]
    before, blocks = 8, []
    for inner, after, kernel, stride, hard in rows:
        blocks.append(WrittenOutBlock((before, inner, after), kernel, stride, hard=hard))
        before = after
    last = [WrittenOutStem(before, 6 * before, 1, 1), nn.MaxPool2d(2)]
    net = ImageNet(WrittenOutStem(3, 8, 3, 2), *blocks, *last, *head(6 * before, 2))
    height, width = (48, 192) if size is Size.REAL else (24, 40)

    def feeds(n: int, seed: int) -> Feeds:
        return {"image": images(n, 3, height, seed, width)}

    return net, feeds


def lcnet(size: Size) -> Made:
    """PP-LCNet x1: depthwise and pointwise convolutions, HardSwish behind each (Cui 2021)."""
    real = size is Size.REAL
    wide = [(32, 3, 1), (64, 3, 2), (64, 3, 1), (128, 3, 2), (128, 3, 1), (256, 3, 2)]
    rows = wide + [(256, 5, 1)] * 5 if real else [(12, 3, 2), (24, 5, 1)]
    before, side = (16, 224) if real else (8, 32)
    layers: list[nn.Module] = [conv_bn((3, before), 3, 2, act=nn.Hardswish)]
    for after, kernel, stride in rows:
        spatial = conv_bn((before, before), kernel, stride, groups=before, act=nn.Hardswish)
        layers.append(spatial)
        layers.append(conv_bn((before, after), 1, act=nn.Hardswish))
        before = after
    return of_images(ImageNet(*layers, *head(before)), side)
