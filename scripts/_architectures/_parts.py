"""Parts that architectures share: sizes, random weights and inputs, convolution, batch norm."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # its name everywhere

Feeds = dict[str, Tensor]
"""The inputs of a module by the names of its parameters; the first axis counts samples."""
Batch = dict[str, npt.NDArray[np.generic]]
"""The same as ONNX Runtime takes it."""
Made = tuple[nn.Module, Callable[[int, int], Feeds]]
"""A module, and what draws its inputs: (samples, seed) -> Feeds."""
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)


class Size(enum.Enum):
    """How wide and deep an architecture is made."""

    TINY = "tiny"
    """Every kind of node that the architecture has, in some milliseconds: for correctness."""
    REAL = "real"
    """Widths as in the papers, fewer blocks and smaller inputs: for speed."""


def images(samples: int, channels: int, side: int, seed: int, width: int | None = None) -> Tensor:
    """(samples, channels, side, width or side): smooth shapes and noise, of about unit size."""
    shape = (side, width or side)
    random = torch.Generator().manual_seed(seed)
    low = torch.randn(samples, channels, *(max(n // 8, 2) for n in shape), generator=random)
    smooth = F.interpolate(low, shape, mode="bicubic", align_corners=False)
    return smooth + 0.25 * torch.randn(samples, channels, *shape, generator=random)


def of_images(module: nn.Module, side: int, channels: int = 3) -> Made:
    """The module, and images (samples, channels, side, side) for it."""

    def feeds(samples: int, seed: int) -> Feeds:
        return {"image": images(samples, channels, side, seed)}

    return module, feeds


def batches(feeds: Feeds, size: int) -> list[Batch]:
    """The samples as batches of that size."""
    arrays = {name: x.numpy() for name, x in feeds.items()}
    total = len(next(iter(arrays.values())))
    return [{k: x[i : i + size] for k, x in arrays.items()} for i in range(0, total, size)]


def signal(samples: int, channels: int, steps: int, seed: int) -> Tensor:
    """(samples, channels, steps): a smooth curve and noise."""
    random = torch.Generator().manual_seed(seed)
    low = torch.randn(samples, channels, max(steps // 8, 2), generator=random)
    noise = torch.randn(samples, channels, steps, generator=random)
    return F.interpolate(low, steps, mode="linear") + 0.2 * noise


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tokens(vocabulary: int, seed: int, *shape: int) -> Tensor:
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def initialize(module: nn.Module) -> None:
    """Random weights that keep activations near unit size; no bias or norm is trivial."""
    torch.manual_seed(0)
    for part in module.modules():
        if isinstance(part, CONVS):
            # of a grouped convolution, fan_out would count the channels of all groups
            plain = part.groups == 1 and not isinstance(part, nn.ConvTranspose2d)
            mode: Literal["fan_in", "fan_out"] = "fan_out" if plain else "fan_in"
            nn.init.kaiming_normal_(part.weight, mode=mode, nonlinearity="relu")
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.1)
        elif isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=1.2 / math.sqrt(part.in_features))
            if part.bias is not None:
                nn.init.normal_(part.bias, std=0.05)
        elif isinstance(part, (*NORMS, nn.LayerNorm)):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.1 if isinstance(part, nn.LayerNorm) else 0.2)
        elif isinstance(part, nn.Embedding | nn.EmbeddingBag):
            nn.init.normal_(part.weight, std=0.3)


def settle(module: nn.Module, feeds: Feeds) -> None:
    """Leaves the module in eval mode, with the batch norm statistics of these samples."""
    norms = [part for part in module.modules() if isinstance(part, NORMS)]
    for norm in norms:
        norm.momentum = None  # the mean over all batches, of which there is one
        norm.reset_running_stats()
    if norms:
        module.train()
        with torch.no_grad():
            module(**feeds)
    for norm in norms:
        norm.momentum = 0.1
    module.eval()


class ImageNet(nn.Sequential):
    """Layers one after the other, whose input is called `image`."""

    def forward(self, image: Tensor) -> Tensor:
        """Result of the last layer for images (N, C, H, W)."""
        for layer in self:
            image = layer(image)
        return image


def conv_bn(
    channels: tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
    *,
    padding: int | None = None,
    groups: int = 1,
    dilation: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Conv (in, out) without bias, BatchNorm, activation; padded to keep the size at stride 1."""
    padding = dilation * (kernel - 1) // 2 if padding is None else padding
    conv = nn.Conv2d(
        *channels, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
    )
    layers: list[nn.Module] = [conv, nn.BatchNorm2d(channels[1])]
    return nn.Sequential(*layers, *([act()] if act else []))


def head(channels: int, classes: int = 10) -> list[nn.Module]:
    """Global average and classification of (N, channels, H, W)."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
