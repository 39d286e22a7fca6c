"""ResNet-20 for 32x32 images (He et al. 2015, section 4.2), 1x1 convolutions on the shortcuts."""

from __future__ import annotations

import torch
from torch import nn

from models.cifar10 import load_sample


class BasicBlock(nn.Module):
    """relu(x' + bn(conv(relu(bn(conv(x)))))); x' is x, or a strided 1x1 convolution of it."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Feature maps (N, channels, H/stride, W/stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        sum_: torch.Tensor = self.relu(y + self.shortcut(x))
        return sum_


class ResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels; 6*blocks + 2 layers."""

    def __init__(self, blocks: int, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
        )
        layers: list[nn.Module] = []
        in_channels = 16
        for channels, first_stride in ((16, 1), (32, 2), (64, 2)):
            for block in range(blocks):
                stride = first_stride if block == 0 else 1
                layers.append(BasicBlock(in_channels, channels, stride))
                in_channels = channels
        self.layers = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(in_channels, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits (N, classes) of images (N, 3, 32, 32), pixel p given as (p - 128) / 64."""
        x = self.layers(self.stem(image))
        logits: torch.Tensor = self.fc(self.pool(x).flatten(1))
        return logits


def resnet20() -> ResNet:
    """An untrained ResNet-20 for CIFAR-10."""
    return ResNet(blocks=3)


def example_inputs() -> dict[str, torch.Tensor]:
    """Inputs that `onnxq export` traces these models with and checks them on: four images."""
    return {"image": torch.from_numpy(load_sample("calibration")[0][:4])}
