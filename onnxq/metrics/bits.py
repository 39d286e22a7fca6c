"""Bits per token of text: how well a language model predicts it; less is better.

    bits = -1/T sum log2 softmax(logits at t)[token t + 1]

The tokens of a byte-level model are bytes, so that these are bits per byte; of another model,
divide `Bits.total` by the bytes of the text. Perplexity is 2 ** bits.

    bits_in_windows("decoder.onnx", windows(bytes_of("held_out.txt"), 256)).per_token
    onnxq tune decoder.onnx windows.npz --metric bits
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError, kind_of
from onnxq.graph import io
from onnxq.language.decoder import IDS, LOGITS, MASK, Decoder
from onnxq.language.token_run import TokenRun
from onnxq.page.card import card_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    import onnx
    import onnx_ir as ir

    from onnxq.core.arrays import Array, Reals

    Tokens = npt.NDArray[np.int64]


__all__ = [
    "Bits",
    "as_samples",
    "bits_in_windows",
    "bits_with_cache",
    "bytes_of",
    "minus_bits",
    "windows",
]

ROWS = 8
"""Windows that run at a time: a batch of 512 tokens and 128,000 words has 2 GB of logits."""
LN_2 = math.log(2)


class Run(Protocol):
    """A model as `onnxq tune` shows it to a metric."""

    def __call__(self, batch: Mapping[str, Array]) -> Mapping[str, Array]:
        """{output: array} of {input: array}."""


@dataclass(frozen=True, slots=True)
class Bits:
    """Bits that tokens cost.

    Attributes:
        total: of all of them.
        tokens: that were predicted; the first of each window is not.
    """

    total: float
    tokens: int

    _repr_html_ = card_of

    @property
    def per_token(self) -> float:
        """Mean."""
        return self.total / self.tokens

    def __add__(self, other: Bits) -> Bits:
        return Bits(self.total + other.total, self.tokens + other.tokens)


def bits_of(logits: Array, tokens: Array) -> Reals:
    """Bits of tokens (N, tokens), each by the logits (N, tokens, vocabulary) before it."""
    if logits.ndim != tokens.ndim + 1 or logits.shape[:-1] != tokens.shape:
        raise CalibrationError(
            f"logits {logits.shape} for tokens {tokens.shape}; wanted (rows, tokens, vocabulary) "
            "for (rows, tokens)."
        )
    if not tokens.size:
        return np.zeros(tokens.shape)
    if int(tokens.min()) < 0 or int(tokens.max()) >= logits.shape[-1]:
        raise CalibrationError(
            f"tokens reach from {tokens.min()} to {tokens.max()}; the model has logits for "
            f"{logits.shape[-1]}. Was the text tokenized for another model?"
        )
    reals = logits.astype(np.float64)
    if not np.isfinite(reals).all():
        raise CalibrationError("the model's logits are not finite, so that no token has bits.")
    top = reals.max(-1, keepdims=True)
    log_sum = top[..., 0] + np.log(np.exp(reals - top).sum(-1))
    wanted = np.take_along_axis(reals, tokens[..., None].astype(np.int64), -1)[..., 0]
    bits: Reals = (log_sum - wanted) / LN_2
    return bits


def bits_in_windows(
    model: str | Path | onnx.ModelProto | ir.Model, rows: Array, threads: int | None = None
) -> Bits:
    """Bits of windows (N, tokens), each in one run from an empty cache.

    Args:
        model: a decoder, float or quantized.
        rows: as `windows` makes them.
        threads: of ONNX Runtime; None: one per core.
    Raises:
        ModelError: it is no decoder.
        CalibrationError: tokens or positions that the model does not know; rows that are no
            windows.
    """
    found = Bits(0.0, 0)
    _check_windows(rows)
    with TokenRun(model, threads) as run:
        for start in range(0, len(rows), ROWS):
            some = rows[start : start + ROWS]
            found += _sum(bits_of(run.whole(some)[:, :-1], some[:, 1:]))
    return found


def bits_with_cache(
    model: str | Path | onnx.ModelProto | ir.Model,
    rows: Array,
    step: int = 1,
    threads: int | None = None,
) -> Bits:
    """Bits of windows (N, tokens), `step` tokens a run, with the cache of those before.

    Same context, same bits as `bits_in_windows`, but for roundings; of models that quantize
    activations per tensor the ranges of a run differ, and so do their bits.

    Args:
        model: a decoder with a cache, float or quantized.
        rows: as `windows` makes them.
        step: tokens per run.
        threads: of ONNX Runtime; None: one per core.
    Raises:
        ModelError: it is no decoder.
        CalibrationError: tokens or positions that the model does not know; it has no cache; rows
            that are no windows.
    """
    _check_windows(rows)
    if step < 1:
        raise CalibrationError(f"step is {step}; wanted 1 token or more a run.")
    found = Bits(0.0, 0)
    at_a_time = ROWS if step == 1 else 1  # GroupQueryAttention: several new tokens of one row only
    with TokenRun(model, threads) as run:
        for start in range(0, len(rows), at_a_time):
            some = rows[start : start + at_a_time]
            logits = np.concatenate(list(run.in_steps(some, step)), 1)
            found += _sum(bits_of(logits[:, :-1], some[:, 1:]))
    return found


def minus_bits(run: Run, samples: Iterable[Mapping[str, Array]]) -> float:
    """Minus the bits per token of windows, for `onnxq tune --metric bits`: higher is better.

    Args:
        run: the model.
        samples: batches with input_ids (N, tokens); where there is an attention_mask, tokens that
            it hides are not counted.
    Raises:
        CalibrationError: there are no input_ids or logits, or no token to predict.
    """
    found = Bits(0.0, 0)
    for batch in samples:
        given = run(batch)
        if IDS not in batch or LOGITS not in given:
            raise CalibrationError(
                f"bits are counted of {LOGITS} for {IDS}; the samples hold {', '.join(batch)}, the "
                f"model gives {', '.join(given)}. Export it with these names."
            )
        tokens = batch[IDS]
        bits = bits_of(given[LOGITS][:, : tokens.shape[1] - 1], tokens[:, 1:])
        mask = batch[MASK][:, 1 - tokens.shape[1] :] if MASK in batch else np.ones(bits.shape)
        found += _sum(bits[mask.astype(np.bool_)])
    if not found.tokens:
        raise CalibrationError("the samples hold no token that another one comes before.")
    return -found.per_token


def _check_windows(rows: Array) -> None:
    """Raises CalibrationError for what is no integers (rows, tokens), 2 tokens or more a row."""
    is_array = isinstance(rows, np.ndarray)
    if is_array and rows.ndim == 2 and rows.dtype.kind in "iu" and len(rows) and rows.shape[1] > 1:
        return
    got = f"{rows.dtype} of shape {rows.shape}" if is_array else kind_of(rows)
    raise CalibrationError(
        f"windows are {got}; wanted integers of shape (rows, tokens), 2 tokens or more a row: each "
        "predicts one. onnxq.metrics.windows makes them of a text."
    )


def _sum(bits: Reals) -> Bits:
    return Bits(float(bits.sum()), bits.size)


def bytes_of(path: str | Path) -> Tokens:
    """The bytes of a file as tokens, int64: those of a model without a tokenizer.

    Raises:
        CalibrationError: there is no such file, or it is empty.
    """
    if why := why_no_file(Path(path)):
        raise CalibrationError(f"text '{path}': {why}. Check the path.")
    found = np.frombuffer(Path(path).read_bytes(), np.uint8).astype(np.int64)
    if not found.size:
        raise CalibrationError(f"text '{path}' is empty. Give one with a window of text or more.")
    return found


def windows(tokens: Array, length: int) -> Tokens:
    """Windows (N, length) of tokens (T,), one behind the other; the rest is left out.

    Raises:
        CalibrationError: fewer tokens than one window, or windows of fewer than two.
    """
    if length < 2:
        raise CalibrationError(f"windows of {length} tokens; wanted 2 or more: each predicts one.")
    count = len(tokens) // length
    if not count:
        raise CalibrationError(
            f"the text has {len(tokens)} tokens; wanted {length} or more, one window. Give a "
            "longer text, or a shorter window."
        )
    return np.asarray(tokens[: count * length], np.int64).reshape(count, length)


def as_samples(
    model: str | Path | onnx.ModelProto | ir.Model,
    rows: Tokens,
    encoded: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Windows (N, tokens) as samples of a decoder: all its inputs, with an empty cache.

    Args:
        model: the decoder.
        rows: windows.
        encoded: inputs that tokens do not give: past_key_cross_I, which is the encoder's
            present_key_cross_I, or inputs_embeds; None: there are none.
    Raises:
        ModelError: it is no decoder.
        CalibrationError: tokens or positions that the model does not know; an input is missing.
    """
    decoder = Decoder.of(io.load(model))
    decoder.check(rows)
    return decoder.feeds(rows, {**decoder.empty(*rows.shape), **(encoded or {})})
