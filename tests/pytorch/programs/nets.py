"""Modules with what a graph of torch.fx does not take, for the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations


class DropPath(nn.Module):
    """Whole rows are dropped in train mode, nothing in eval mode."""

    def forward(self, x: Tensor) -> Tensor:
        """x, rows of it times 0 or 2."""
        if not self.training:
            return x
        return x * torch.empty(x.shape[0], *[1] * (x.ndim - 1)).bernoulli_(0.5) * 2


class Mixed(nn.Module):
    """Layers, functions, a computed weight, writes in place, a branch on a shape, a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        self.norm = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout2d(0.2)
        self.path = DropPath()
        self.normed = parametrizations.weight_norm(nn.Linear(4, 4))
        self.rms = nn.RMSNorm(4)
        self.bare = nn.Parameter(torch.randn(4, 4))
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.bare
        self.unused = nn.Linear(2, 2)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))
        self.place: Tensor
        self.register_buffer("place", torch.arange(8.0), persistent=False)

    def forward(self, x: Tensor, scale: float = 1.0, extra: Tensor | None = None) -> dict[str, Any]:
        """Two scores of shape (N, 4)."""
        self.count.add_(1)
        if x.shape[-1] % 2:
            x = x[..., :-1]
        y = self.drop(self.act(self.norm(self.conv(x))))
        y = y * scale + self.place
        y[:, 0] *= 0.5
        z = self.rms(self.normed(self.path(y).mean((2, 3))))
        rate = 0.3 if self.training else 0.0
        z = functional.dropout(z, rate, self.training) @ self.bare
        if extra is not None:
            z = z + extra
        return {"scores": z, "rest": (self.tied(z), None)}


@dataclass
class Result:
    """Results of Nested.

    Attributes:
        scores: of shape (N, 4).
        state: any.
        name: no tensor.
    """

    scores: Tensor
    state: tuple[Tensor, ...]
    name: None = None


class Nested(nn.Module):
    """Tensors in tuples and dicts, a recurrent layer, a dataclass as result."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, batch: dict[str, Tensor], state: tuple[Tensor, Tensor]) -> Result:
        """The last step."""
        y, state = self.lstm(batch["x"], state)
        return Result(y[:, -1], state)


def images(count: int = 4) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def sequences(count: int = 3) -> tuple[dict[str, Tensor], tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x, h, c = (
        torch.randn(*shape, generator=generator)
        for shape in ((count, 5, 4), (1, count, 4), (1, count, 4))
    )
    return {"x": x}, (h, c)
