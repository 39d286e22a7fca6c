"""A MobileNetV2-style network (Sandler et al. 2018) for 32x32 images: depthwise, ReLU6."""

from __future__ import annotations

import torch
from torch import nn

from models.cifar10 import load_sample

# (expansion, channels, blocks, stride of the first block)
STAGES = ((1, 16, 1, 2), (6, 24, 2, 1), (6, 32, 2, 1), (6, 64, 3, 2), (6, 96, 2, 1))
STEM_CHANNELS = 32
HEAD_CHANNELS = 256


def conv_bn_relu6(
    in_channels: int, channels: int, kernel: int, stride: int, groups: int
) -> nn.Sequential:
    """Convolution without bias, batch norm, ReLU6; 'same' padding."""
    return nn.Sequential(
        nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU6(),
    )


class InvertedResidual(nn.Module):
    """1x1 expand, 3x3 depthwise, 1x1 project; added to the input where the shapes agree."""

    def __init__(self, in_channels: int, channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        self.expand = nn.Sequential()
        if expansion != 1:
            self.expand = conv_bn_relu6(in_channels, hidden, 1, 1, 1)
        self.depthwise = conv_bn_relu6(hidden, hidden, 3, stride, hidden)
        self.project = nn.Sequential(
            nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels)
        )
        self.residual = stride == 1 and in_channels == channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps (N, channels, H/stride, W/stride)."""
        y: torch.Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Stem, inverted residuals, 1x1 head, global average pool, linear classifier."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.stem = conv_bn_relu6(3, STEM_CHANNELS, 3, 1, 1)
        layers: list[nn.Module] = []
        in_channels = STEM_CHANNELS
        for expansion, channels, blocks, first_stride in STAGES:
            for block in range(blocks):
                stride = first_stride if block == 0 else 1
                layers.append(InvertedResidual(in_channels, channels, stride, expansion))
                in_channels = channels
        self.layers = nn.Sequential(*layers)
        self.head = conv_bn_relu6(in_channels, HEAD_CHANNELS, 1, 1, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(HEAD_CHANNELS, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32), pixel p given as (p - 128) / 64."""
        x = self.head(self.layers(self.stem(image)))
        logits: torch.Tensor = self.fc(self.pool(x).flatten(1))
        return logits


def mobilenetv2() -> MobileNetV2:
    """An untrained MobileNetV2-style network for CIFAR-10."""
    return MobileNetV2()


def example_inputs() -> dict[str, torch.Tensor]:
    """Inputs that `onnxq export` traces these models with and checks them on: four images."""
    return {"image": torch.from_numpy(load_sample("calibration")[0][:4])}
