"""A language model of bytes: a decoder as Llama's (Touvron et al. 2023), trained on novels.

Its 256 tokens are the bytes; the names of its weights are those of LlamaForCausalLM in Hugging
Face's transformers, so that its file can be loaded there too. scripts/make_novels.py and
scripts/train_decoder.py made it.
"""

from __future__ import annotations

import torch
from torch import nn

from models.sizes import Sizes

TOKENS = 256  # the bytes
INIT_STD = 0.02
HIDDEN = -1e9  # added to scores that are not to count; -inf makes NaN of a row that is all padding

Cache = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of a layer, (N, kv_heads, positions, head)."""


class Norm(nn.Module):
    """y = x / sqrt(mean(x^2) + epsilon) * weight (RMSNorm)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, tokens, width) -> the same shape."""
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return y * self.weight


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding: number i of a head and number i + head / 2 are turned as a pair.

    Args:
        x: (N, heads, tokens, head).
        cos: of the angles, (N, 1, tokens, head / 2).
        sin: the same.
    """
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Attention(nn.Module):
    """Grouped heads: `heads` heads of queries share `kv_heads` heads of keys and values."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        kv = sizes.kv_heads * sizes.head
        self.q_proj = nn.Linear(sizes.width, sizes.width, bias=False)
        self.k_proj = nn.Linear(sizes.width, kv, bias=False)
        self.v_proj = nn.Linear(sizes.width, kv, bias=False)
        self.o_proj = nn.Linear(sizes.width, sizes.width, bias=False)

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """(N, tokens, heads * head) -> (N, heads, tokens, head)."""
        return x.reshape(*x.shape[:2], -1, self.sizes.head).transpose(1, 2)

    def forward(
        self,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        past: Cache | None,
    ) -> tuple[torch.Tensor, Cache]:
        """Attention of x (N, tokens, width) to the past and itself, and all keys and values."""
        q = rotated(self._heads(self.q_proj(x)), *turn)
        k = rotated(self._heads(self.k_proj(x)), *turn)
        v = self._heads(self.v_proj(x))
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        groups = self.sizes.heads // self.sizes.kv_heads
        y = nn.functional.scaled_dot_product_attention(
            q,
            k.repeat_interleave(groups, 1),
            v.repeat_interleave(groups, 1),
            attn_mask=mask,
            is_causal=mask is None,
        )
        return self.o_proj(y.transpose(1, 2).flatten(2)), (k, v)


class SwiGLU(nn.Module):
    """y = down(silu(gate(x)) * up(x))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, tokens, width) -> the same shape."""
        gated = nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)
        y: torch.Tensor = self.down_proj(gated)
        return y


class Layer(nn.Module):
    """y = x + attention(norm(x)), then y + mlp(norm(y))."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.input_layernorm = Norm(sizes.width, sizes.epsilon)
        self.self_attn = Attention(sizes)
        self.post_attention_layernorm = Norm(sizes.width, sizes.epsilon)
        self.mlp = SwiGLU(sizes.width, sizes.hidden)

    def forward(
        self,
        x: torch.Tensor,
        turn: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor | None,
        past: Cache | None,
    ) -> tuple[torch.Tensor, Cache]:
        """(N, tokens, width) -> the same shape, and all keys and values."""
        attended, present = self.self_attn(self.input_layernorm(x), turn, mask, past)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), present


class Body(nn.Module):
    """The embedding, the layers and the last norm."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(TOKENS, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.depth))
        self.norm = Norm(sizes.width, sizes.epsilon)


class Decoder(nn.Module):
    """Logits of the next byte; the embedding is the head too."""

    angles: torch.Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.model = Body(sizes)
        steps = torch.arange(0, sizes.head, 2) / sizes.head
        self.register_buffer("angles", sizes.theta**-steps, persistent=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=INIT_STD)

    def turn(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines (N, 1, tokens, head / 2) of positions (N, tokens)."""
        angles = positions[:, None, :, None].float() * self.angles
        return angles.cos(), angles.sin()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Logits (N, tokens, 256) of bytes (N, tokens), which begin at position 0."""
        turn = self.turn(torch.arange(input_ids.shape[1], device=input_ids.device)[None])
        x = self.model.embed_tokens(input_ids)
        for layer in self.model.layers:
            x, _ = layer(x, turn, None, None)
        return self.logits(x)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, tokens, 256) of the last hidden state."""
        return nn.functional.linear(self.model.norm(x), self.model.embed_tokens.weight)


class Cached(nn.Module):
    """The decoder with its cache as inputs and outputs, as runtimes for language models call it."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: list[Cache],
    ) -> tuple[torch.Tensor, list[Cache]]:
        """Logits (N, tokens, 256), and all keys and values, the new ones at the end.

        Args:
            input_ids: bytes, int64 (N, tokens).
            attention_mask: 1 where there is a byte, int64 (N, past + tokens); 0 is padding.
            position_ids: of the bytes, int64 (N, tokens).
            past_key_values: of each layer, keys and values (N, kv_heads, past, head).
        """
        tokens, past_length = input_ids.shape[1], past_key_values[0][0].shape[2]
        places = torch.arange(past_length + tokens, device=input_ids.device)
        asking = torch.arange(tokens, device=input_ids.device) + past_length
        causal = places[None, :] <= asking[:, None]
        allowed = causal[None, None] & (attention_mask[:, None, None, :] > 0)
        mask = torch.where(allowed, 0.0, HIDDEN)
        turn = self.decoder.turn(position_ids)
        x = self.decoder.model.embed_tokens(input_ids)
        present = []
        for layer, past in zip(self.decoder.model.layers, past_key_values, strict=True):
            x, kept = layer(x, turn, mask, past)
            present.append(kept)
        return self.decoder.logits(x), present


def decoder() -> Decoder:
    """An untrained decoder of 3.2 million parameters; its weights are in decoder.safetensors."""
    return Decoder(Sizes())
