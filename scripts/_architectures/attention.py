"""Attention in the forms that exporters meet, and the pre-norm block around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Attention(nn.Module):
    """One Linear for Q, K and V; scaled_dot_product_attention: timm today, nanoGPT."""

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Q, K and V (N, heads, steps, width / heads) of (N, steps, width)."""
        n, steps, width = x.shape
        x = self.qkv(x).reshape(n, steps, 3, self.heads, width // self.heads)
        return x.permute(2, 0, 3, 1, 4).unbind(0)

    def merge(self, y: Tensor) -> Tensor:
        """(N, steps, width) of (N, heads, steps, width / heads)."""
        y = y.transpose(1, 2)
        out: Tensor = self.out(y.reshape(y.shape[0], y.shape[1], self.out.in_features))
        return out

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, width) -> the same shape."""
        q, k, v = self.split(x)
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal))


class ExplicitAttention(Attention):
    """softmax(Q d^-1/2 K^T) V as MatMuls: timm before its fused attention."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, width) -> the same shape."""
        q, k, v = self.split(x)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        return self.merge(scores.softmax(-1) @ v)


class Block(nn.Module):
    """x + attention(norm(x)), then y + mlp(norm(y)); the MLP is 4 times as wide, with GELU."""

    def __init__(
        self,
        width: int,
        heads: int,
        attention: type[Attention] = Attention,
        *,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), attention(width, heads, causal=causal)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(N, steps, width) -> the same shape."""
        x = x + self.attention(self.norm1(x))
        y: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return y


def randn_parameter(std: float, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape) * std)
