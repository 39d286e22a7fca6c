"""Transformers on tokens and sound: GPT with and without a cache, BERT, Whisper's encoder."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from scripts._architectures._parts import Feeds, Made, Size, signal, tokens
from scripts._architectures.attention import Attention, Block, randn_parameter

WIDTHS = {Size.REAL: (4000, 384, 6), Size.TINY: (100, 48, 3)}  # vocabulary, width, heads


class CachedGpt(nn.Module):
    """A layer of GPT-2 with keys and values of the past as inputs, and a tied head."""

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(128, width)
        self.norm1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.norm2 = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor, past_k: Tensor, past_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (N, steps, vocabulary), keys and values with these steps appended.

        ids (N, steps); past_k and past_v (N, heads, past, width / heads).
        """
        n, steps = ids.shape
        past = past_k.shape[2]
        x = self.words(ids) + self.places(torch.arange(past, past + steps))
        width = x.shape[-1]
        y = self.qkv(self.norm1(x)).reshape(n, steps, 3, self.heads, width // self.heads)
        q, k, v = y.permute(2, 0, 3, 1, 4).unbind(0)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        mask = torch.ones(steps, past + steps, dtype=torch.bool).tril(past)
        scores = scores.masked_fill(~mask, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, steps, width))
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return self.norm(x) @ self.words.weight.T, k, v


def gpt_cache(size: Size) -> Made:
    """GPT-2 (Radford et al. 2019), eight steps behind a cache of twelve; -inf mask, tied head."""
    vocabulary, width, heads = WIDTHS[size]

    def feeds(n: int, seed: int) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        past = (n, heads, 12, width // heads)
        return {
            "ids": torch.randint(vocabulary, (n, 8), generator=random),
            "past_k": torch.randn(past, generator=random),
            "past_v": torch.randn(past, generator=random),
        }

    return CachedGpt(vocabulary, width, heads), feeds


class CausalGpt(nn.Module):
    """Blocks with scaled_dot_product_attention(is_causal=True), a head of its own."""

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*[Block(width, heads, causal=True) for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (N, steps, vocabulary) of ids (N, steps)."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def gpt_causal(size: Size) -> Made:
    """GPT-2 (Radford et al. 2019) as nanoGPT writes it, 32 steps."""
    vocabulary = WIDTHS[size][0]
    return CausalGpt(*WIDTHS[size]), lambda n, seed: {"ids": tokens(vocabulary, seed, n, 32)}


class Bert(nn.Module):
    """Post-norm encoder over words, places and segments; padding is masked by the least float."""

    def __init__(self, vocabulary: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(128, width)
        self.segments, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList([self._layer(width) for _ in range(2)])
        self.pool, self.classify = nn.Linear(width, width), nn.Linear(width, 2)

    @staticmethod
    def _layer(width: int) -> nn.ModuleList:
        attention = [nn.Linear(width, width) for _ in range(4)]
        mlp = [nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]
        return nn.ModuleList([*attention, nn.LayerNorm(width), *mlp, nn.LayerNorm(width)])

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, 2) and states (N, steps, width); mask is 0 at padding, all (N, steps)."""
        n, steps = ids.shape
        x = self.words(ids) + self.places(torch.arange(steps)) + self.segments(segments)
        x = self.norm(x)
        least = torch.finfo(torch.float32).min
        bias = (1.0 - mask[:, None, None, :].float()) * least

        def split(y: Tensor) -> Tensor:
            return y.view(n, steps, self.heads, -1).transpose(1, 2)

        for layer in self.layers:
            assert isinstance(layer, nn.ModuleList)
            query, key, value, out, norm1, up, down, norm2 = layer
            scores = split(query(x)) @ split(key(x)).transpose(-1, -2)
            scores = scores / math.sqrt(x.shape[-1] // self.heads) + bias
            y = scores.softmax(-1) @ split(value(x))
            x = norm1(x + out(y.transpose(1, 2).reshape(n, steps, -1)))
            x = norm2(x + down(F.gelu(up(x))))
        return self.classify(torch.tanh(self.pool(x[:, 0]))), x


def bert(size: Size) -> Made:
    """BERT (Devlin et al. 2018), Hugging Face's layout, lengths that differ."""
    vocabulary = WIDTHS[size][0]
    steps = 64 if size is Size.REAL else 16

    def feeds(n: int, seed: int) -> Feeds:
        random = torch.Generator().manual_seed(seed)
        lengths = torch.randint(steps // 2, steps + 1, (n,), generator=random)
        return {
            "ids": torch.randint(vocabulary, (n, steps), generator=random),
            "mask": (torch.arange(steps)[None] < lengths[:, None]).long(),
            "segments": torch.randint(2, (n, steps), generator=random),
        }

    return Bert(*WIDTHS[size]), feeds


class SpeechEncoder(nn.Module):
    """Two 1-D convolutions with GELU, of which one halves the steps; pre-norm blocks."""

    def __init__(self, bands: int, width: int, heads: int, steps: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(bands, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, 2, 1)
        self.places = randn_parameter(0.3, steps // 2, width)
        self.blocks = nn.Sequential(*[Block(width, heads, Attention) for _ in range(2)])
        self.norm = nn.LayerNorm(width)

    def forward(self, mel: Tensor) -> Tensor:
        """States (N, steps / 2, width) of spectrograms (N, bands, steps)."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2) + self.places
        states: Tensor = self.norm(self.blocks(x))
        return states


def whisper(size: Size) -> Made:
    """Whisper-tiny's encoder, two blocks (Radford et al. 2022)."""
    bands, steps = (80, 300) if size is Size.REAL else (16, 32)
    _, width, heads = WIDTHS[size]
    encoder = SpeechEncoder(bands, width, heads, steps)
    return encoder, lambda n, seed: {"mel": signal(n, bands, steps, seed)}
