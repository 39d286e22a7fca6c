"""Kullback-Leibler divergence of next-token distributions, with its standard error.

    KL = sum_v p_v log2(p_v / q_v)      p, q = softmax of the float and of the quantized logits

It ranks ways to quantize a language model: bits per token of a text differ by less than their own
error where KL differs threefold. The error is that of the mean over rows of tokens, for tokens of
one text are not independent; of a single row, over its tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LN_2 = math.log(2)
RANK = 3


@dataclass(slots=True)
class Divergence:
    """Sums of KL over tokens and over rows."""

    tokens: int = 0
    total: float = 0.0
    squares: float = 0.0
    rows: int = 0
    row_total: float = 0.0
    row_squares: float = 0.0

    def update(self, x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> None:
        """Adds two arrays of logits (rows, tokens, vocabulary), the float model's first."""
        if not x.size:
            return
        log_p, log_q = _log_softmax(x), _log_softmax(y)
        with np.errstate(invalid="ignore"):
            bits = np.sum(np.exp(log_p) * (log_p - log_q), axis=-1) / LN_2
        means = bits.mean(axis=1)
        self.add(
            Divergence(
                bits.size,
                float(bits.sum()),
                float(np.square(bits).sum()),
                means.size,
                float(means.sum()),
                float(np.square(means).sum()),
            )
        )

    def add(self, other: Divergence) -> None:
        """Adds what another one summed."""
        self.tokens += other.tokens
        self.total += other.total
        self.squares += other.squares
        self.rows += other.rows
        self.row_total += other.row_total
        self.row_squares += other.row_squares

    @property
    def bits(self) -> float | None:
        """Mean over tokens; None: none were seen."""
        return self.total / self.tokens if self.tokens else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean, in bits; None for one token."""
        count, total, squares = self.rows, self.row_total, self.row_squares
        if count == 1:
            count, total, squares = self.tokens, self.total, self.squares
        if count < 2:
            return None
        variance = max(squares / count - (total / count) ** 2, 0.0)
        return math.sqrt(variance / (count - 1))


def _log_softmax(logits: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    reals = logits.astype(np.float64)
    reals -= reals.max(axis=-1, keepdims=True)
    return np.asarray(reals - np.log(np.exp(reals).sum(axis=-1, keepdims=True)))
