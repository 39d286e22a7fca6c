"""Sizes of the decoder, which need no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a decoder.

    Attributes:
        width: of the hidden state.
        depth: layers.
        heads: of queries, each of width / heads numbers.
        kv_heads: of keys and values; heads is a multiple of it.
        hidden: inner width of the SwiGLU.
        context: positions that it was trained on.
        theta: base of the rotary angles.
        epsilon: of the norms.
    """

    width: int = 256
    depth: int = 4
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 768
    context: int = 512
    theta: float = 10_000.0
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Numbers per head."""
        return self.width // self.heads
