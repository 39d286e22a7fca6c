"""Signals over time and space: WaveNet, TCN, CRNN, C3D."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import Feeds, Made, Size, conv_bn, images, signal


class WaveNet(nn.Module):
    """Causal dilated convolutions, tanh times sigmoid, the sum of all skips."""

    def __init__(self, c: int, layers: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, c, 1)
        self.filters, self.gates = (
            nn.ModuleList([nn.Conv1d(c, c, 2, dilation=2**i) for i in range(layers)])
            for _ in range(2)
        )
        self.skips, self.residuals = (
            nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(layers)]) for _ in range(2)
        )
        self.out1, self.out2 = nn.Conv1d(c, c, 1), nn.Conv1d(c, 16, 1)

    def forward(self, wave: Tensor) -> Tensor:
        """Logits (N, 16, steps) of waves (N, 1, steps)."""
        x = self.first(wave)
        total: Tensor | int = 0
        layers = zip(self.filters, self.gates, self.skips, self.residuals, strict=True)
        for i, (filter_, gate, skip, residual) in enumerate(layers):
            past = F.pad(x, (2**i, 0))
            y = torch.tanh(filter_(past)) * torch.sigmoid(gate(past))
            total = total + skip(y)
            x = x + residual(y)
        # no assert: prepare_qat traces with proxies, which are no tensors
        logits: Tensor = self.out2(F.relu(self.out1(F.relu(cast("Tensor", total)))))
        return logits


def wavenet(size: Size) -> Made:
    """WaveNet, five layers (van den Oord et al. 2016)."""
    c, steps = (64, 512) if size is Size.REAL else (8, 64)
    return WaveNet(c, 5), lambda n, seed: {"wave": signal(n, 1, steps, seed)}


class Tcn(nn.Module):
    """Causal dilated convolutions with residuals; the last step is classified."""

    def __init__(self, channels: int, c: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv1d(c if i else channels, c, 3, dilation=2**i) for i in range(4)]
        )
        self.shortcut, self.head = nn.Conv1d(channels, c, 1), nn.Linear(c, 6)

    def forward(self, wave: Tensor) -> Tensor:
        """Logits (N, 6) of (N, channels, steps)."""
        x = wave
        for i, conv in enumerate(self.convs):
            y = F.relu(conv(F.pad(x, (2 * 2**i, 0))))
            x = F.relu(y + (x if i else self.shortcut(x)))
        logits: Tensor = self.head(x[:, :, -1])
        return logits


def tcn(size: Size) -> Made:
    """TCN (Bai et al. 2018)."""
    channels, c, steps = (16, 128, 256) if size is Size.REAL else (4, 12, 64)
    return Tcn(channels, c), lambda n, seed: {"wave": signal(n, channels, steps, seed)}


class Crnn(nn.Module):
    """Convolutions until three rows are left, a two-layer bidirectional LSTM over columns."""

    def __init__(self, c: int, hidden: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            conv_bn((1, c)),
            nn.MaxPool2d(2),
            conv_bn((c, 2 * c)),
            nn.MaxPool2d((2, 1)),
            conv_bn((2 * c, 2 * c)),
            nn.MaxPool2d((2, 1)),
            conv_bn((2 * c, 4 * c), 2, padding=0),
        )
        self.lstm = nn.LSTM(12 * c, hidden, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, 20)

    def forward(self, image: Tensor) -> Tensor:
        """Logarithms of shares (N, W / 2 - 1, 20) of images (N, 1, 32, W)."""
        x = self.convs(image).flatten(1, 2).permute(0, 2, 1)
        return F.log_softmax(self.head(self.lstm(x)[0]), -1)


def crnn(size: Size) -> Made:
    """CRNN, which reads text (Shi et al. 2015)."""
    c, hidden, width = (32, 128, 100) if size is Size.REAL else (4, 8, 24)
    return Crnn(c, hidden), lambda n, seed: {"image": images(n, 1, 32, seed, width)}


def _conv3(before: int, after: int) -> nn.Sequential:
    conv = nn.Conv3d(before, after, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm3d(after), nn.ReLU())


class C3d(nn.Module):
    """Three convolutions over time, height and width."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv3(3, c),
            nn.MaxPool3d((1, 2, 2)),
            _conv3(c, 2 * c),
            nn.MaxPool3d(2),
            _conv3(2 * c, 4 * c),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(4 * c, 6),
        )

    def forward(self, video: Tensor) -> Tensor:
        """Logits (N, 6) of videos (N, 3, frames, H, W)."""
        logits: Tensor = self.body(video)
        return logits


def c3d(size: Size) -> Made:
    """C3D, three of its layers (Tran et al. 2014)."""
    c, side, frames = (16, 48, 8) if size is Size.REAL else (4, 16, 4)

    def feeds(n: int, seed: int) -> Feeds:
        video = images(n * frames, 3, side, seed).view(n, frames, 3, side, side)
        return {"video": video.transpose(1, 2).contiguous()}

    return C3d(c), feeds
