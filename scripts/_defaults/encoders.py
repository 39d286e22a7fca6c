"""Post-norm encoders: one of sentences, with outlier channels in its residuals; BERT's block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # its name everywhere

import onnxq
from scripts._architectures._parts import Feeds, Size, batches, initialize, normal
from scripts._defaults.case import (
    CALIBRATED,
    CALIBRATION_SEED,
    EXPORT_SEED,
    TEST_SEED,
    TESTED,
    TOGETHER,
    Case,
    exported,
)

if TYPE_CHECKING:
    from pathlib import Path

    from scripts._architectures._parts import Batch

RANGE = 220.0  # of the sum ahead of a LayerNorm, in the columns that stand out
OUTLYING = {0: (5, 40), 2: (17,)}
"""Layer -> columns of its second feed-forward weight that are so much larger."""
SMALL_GAIN = 0.02  # of LayerNorm where the residual stream stands out


class Layer(nn.Module):
    """y = norm(x + attention(x)), then norm(y + down(gelu(up(y)))): Hugging Face's layout."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(N, steps, width) -> the same shape; bias (N, 1, 1, steps) is added to the scores."""
        n, steps, width = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(n, steps, self.heads, width // self.heads).transpose(1, 2)

        scores = split(self.query(x)) @ split(self.key(x)).transpose(-1, -2)
        scores = scores / math.sqrt(width // self.heads)
        if bias is not None:
            scores = scores + bias
        y = (scores.softmax(-1) @ split(self.value(x))).transpose(1, 2).reshape(n, steps, width)
        x = self.norm1(x + self.out(y))
        z: Tensor = self.norm2(x + self.down(F.gelu(self.up(x))))
        return z


class SentenceEncoder(nn.Module):
    """Words and places, layers; the mean of the words that are there, at unit length."""

    def __init__(self, vocabulary: int, width: int, depth: int, heads: int, longest: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([Layer(width, heads, 4 * width) for _ in range(depth)])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors (N, width) of ids (N, steps); mask is 0 at padding."""
        there = mask.float()
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        bias = (1.0 - there[:, None, None, :]) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)
        return F.normalize((x * there[:, :, None]).sum(1) / there.sum(1, keepdim=True))


def stand_out(encoder: SentenceEncoder, feeds: Feeds) -> None:
    """Gives the columns of OUTLYING the range RANGE, and the others their size behind the norm."""
    for place, columns in OUTLYING.items():
        layer = encoder.layers[place]
        assert isinstance(layer, Layer)
        sums: list[Tensor] = []
        ahead = layer.norm2.register_forward_pre_hook(lambda _, x, sums=sums: sums.append(x[0]))
        parts: list[Tensor] = []
        hook = layer.down.register_forward_hook(lambda _, __, y, parts=parts: parts.append(y))
        with torch.no_grad():
            encoder(**feeds)
            for column in columns:
                part = parts[0][..., column]
                grown = RANGE / (part.max() - part.min())
                layer.down.weight[column] *= grown
                layer.down.bias[column] *= grown
            encoder(**feeds)
            layer.norm2.weight.mul_(sums[1].std() / sums[0].std())
            layer.norm2.weight[list(columns)] = SMALL_GAIN
        ahead.remove()
        hook.remove()


def sentence_encoder(size: Size, folder: Path) -> Case:
    """MiniLM's size (6 layers, width 384, 12 heads), embeddings included, at 32 and 128 tokens."""
    real = size is Size.REAL
    vocabulary, width, depth, heads = (30522, 384, 6, 12) if real else (64, 48, 3, 4)
    lengths = (32, 128) if real else (8, 16)
    module = SentenceEncoder(vocabulary, width, depth, heads, lengths[-1]).eval()
    initialize(module)

    def feeds(samples: int, seed: int, steps: int = lengths[-1], shortest: float = 0.5) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        there = torch.randint(int(steps * shortest), steps + 1, (samples,), generator=random)
        return {
            "ids": torch.randint(vocabulary, (samples, steps), generator=random),
            "mask": (torch.arange(steps)[None] < there[:, None]).long(),
        }

    stand_out(module, feeds(TOGETHER, EXPORT_SEED))
    path = folder / "float.onnx"
    axes = {name: {0: "batch", 1: "steps"} for name in ("ids", "mask")}
    onnxq.export(module, feeds(TOGETHER, EXPORT_SEED), path, dynamic_axes=axes)

    def both(samples: int, seed: int) -> list[Batch]:
        drawn = [batches(feeds(samples // 2, seed + steps, steps), TOGETHER) for steps in lengths]
        return [batch for each in drawn for batch in each]

    timed = {f"{n} tokens": batches(feeds(1, EXPORT_SEED, n, 1.0), 1)[0] for n in lengths}
    return Case(path, both(CALIBRATED, CALIBRATION_SEED), both(TESTED, TEST_SEED), timed)


def bert_block(size: Size, folder: Path) -> Case:
    """BERT base's layer (width 768, 12 heads, hidden size 3072) at 128 tokens."""
    width, heads, steps = (768, 12, 128) if size is Size.REAL else (48, 4, 16)
    module = Layer(width, heads, 4 * width).eval()
    initialize(module)

    def draw(samples: int, seed: int) -> Feeds:
        return {"x": normal(seed, samples, steps, width)}

    return exported((module, draw), folder / "float.onnx")
