"""A decoder with a cache: its inputs and outputs, by the names that exporters agree on.

input_ids       (N, tokens)                 tokens, int64 or int32; or inputs_embeds, their vectors
attention_mask  (N, past + tokens)          1 where there is a token; may be missing
position_ids    (N, tokens)                 may be missing
past_key_values.I.key, .value               of layer I, (N, kv_heads, past, head)
past_key_self_I, past_value_self_I          likewise, of the decoder behind an encoder
past_key_cross_I, past_value_cross_I        of the encoder; the same for all tokens
past.I.conv, .recurrent                     states as long whatever came before
-> logits       (N, tokens, vocabulary)     of the token that comes next
-> present.I.key, .value                    (N, kv_heads, past + tokens, head); others likewise
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError, ModelError, listed
from onnxq.ort.cached_attention import can_share, head_size, positions, query_heads, sliding_windows
from onnxq.samples.inputs import InputSpec, input_specs

IDS, MASK, POSITIONS, LOGITS = "input_ids", "attention_mask", "position_ids", "logits"
EMBEDDED = "inputs_embeds"
_KEYS = re.compile(r"past_key_values\.\d+\.(key|value)|past_(key|value)_self_\d+")
_STATES = re.compile(r"past\.\d+\.(conv|recurrent)")
_ENCODED = re.compile(r"past_(key|value)_cross_\d+")


@dataclass(frozen=True, slots=True)
class Decoder:
    """Inputs and outputs of a decoder.

    Attributes:
        past: name of an input of the cache -> the output that is to be its next value; keys and
            values, and states that are none.
        encoded: names of inputs that are no tokens and do not change: of an encoder, or vectors.
        vocabulary: number of tokens; None: the model does not say.
        context: positions that the model knows; None: it does not say.
        heads: of queries; None: unknown.
        head: numbers per head, where the shapes of the cache do not say; None: unknown.
        shares: whether past and present may be one buffer.
        windows: input of the cache -> tokens that it holds from the first on, where it slides: the
            last ones stand at its end, and present is as long as past.
    """

    inputs: tuple[InputSpec, ...]
    past: dict[str, str]
    encoded: tuple[str, ...]
    vocabulary: int | None
    context: int | None
    heads: int | None
    head: int | None
    shares: bool
    windows: dict[str, int]

    @classmethod
    def of(cls, model: ir.Model) -> Decoder:
        """The inputs and outputs of a model."""
        inputs = input_specs(model)
        outputs = {str(value.name): value for value in model.graph.outputs}
        names = [spec.name for spec in inputs]
        keys = {name: _present(name) for name in names if _KEYS.fullmatch(name)}
        past = keys | {name: _present(name) for name in names if _STATES.fullmatch(name)}
        encoded = tuple(name for name in names if name == EMBEDDED or _ENCODED.fullmatch(name))
        known = {IDS, MASK, POSITIONS, *past, *encoded}
        lacking = [name for name in (LOGITS, *past.values()) if name not in outputs]
        if {IDS, EMBEDDED}.isdisjoint(names) or lacking or set(names) - known:
            raise ModelError(
                f"model '{model.graph.name}' is no decoder: it takes "
                f"{', '.join(names)} and gives {', '.join(outputs)}; wanted {IDS} (or {EMBEDDED}), "
                f"perhaps {MASK}, {POSITIONS}, past_key_values.I.key and .value, past_key_self_I, "
                f"past_key_cross_I, past.I.conv or .recurrent, and {LOGITS} with present.I.key and "
                ".value, present_key_self_I, present.I.conv. Export it with these names "
                "(input_names and output_names of onnxq.export)."
            )
        shape = outputs[LOGITS].shape
        last = shape[-1] if shape is not None and len(shape) else None
        return cls(
            inputs,
            past,
            encoded,
            last if isinstance(last, int) else None,
            positions(model),
            query_heads(model),
            head_size(model),
            can_share(model, keys),
            sliding_windows(model),
        )

    @property
    def layers(self) -> int:
        """Layers that keep keys and values."""
        return len(self.keys) // 2

    @property
    def keys(self) -> dict[str, str]:
        """The part of `past` that is keys and values."""
        return {name: present for name, present in self.past.items() if _KEYS.fullmatch(name)}

    @property
    def cache(self) -> tuple[int, int]:
        """Heads of keys and values, and numbers per head."""
        for spec in self.inputs:
            if spec.name in self.keys and spec.shape is not None and len(spec.shape) == 4:
                heads, size = spec.shape[1], spec.shape[3]
                size = size if isinstance(size, int) else self.head
                if isinstance(heads, int) and isinstance(size, int):
                    return heads, size
        raise ModelError(
            "the model has no cache whose sizes it says: wanted inputs past_key_values.I.key of "
            "shape (batch, heads, past, head) with fixed heads and head. Export it with its cache "
            "(docs/tutorials/language-models.md)."
        )

    def empty(self, rows: int, tokens: int = 0) -> dict[str, Array]:
        """The cache before the first token.

        Args:
            rows: of texts.
            tokens: that a cache which slides is to hold at least, so that its outputs show them.
        """
        lengths = {name: max(size, tokens) for name, size in self.windows.items()}
        found = {}
        for spec in self.inputs:
            sizes = [size if isinstance(size, int) else rows for size in spec.shape or ()]
            if spec.name in self.keys:
                heads, head = self.cache
                sizes = [rows, heads, lengths.get(spec.name, 0), head]
            if spec.name in self.past:
                found[spec.name] = np.zeros(sizes, spec.dtype)
        return found

    def feeds(
        self, tokens: Array, past: Mapping[str, Array], before: int | None = None
    ) -> dict[str, Array]:
        """Inputs of the model for tokens (N, new) behind a cache.

        Args:
            tokens: the new ones.
            past: the cache, and what is `encoded`.
            before: tokens so far; None: as many as the cache is long, where it does not slide.
        Raises:
            CalibrationError: a token that the vocabulary lacks; more positions than there are; an
                input that tokens do not give.
        """
        self.check(tokens)
        if lacking := [name for name in self.encoded if name not in past]:
            raise CalibrationError(
                f"the decoder takes {listed(lacking)} beside tokens, which another part of "
                "the model gives. Give their arrays: as_samples(model, tokens, encoded=...)."
            )
        if before is None:
            grown = self.keys.keys() - self.windows.keys()
            before = next((x.shape[2] for n, x in past.items() if n in grown), 0)
        rows, new = tokens.shape
        self.check_length(before + new)
        given = {
            IDS: tokens,
            MASK: np.ones((rows, before + new), np.int64),
            POSITIONS: np.tile(np.arange(before, before + new), (rows, 1)),
        }
        taken = {
            spec.name: given[spec.name].astype(spec.dtype)
            for spec in self.inputs
            if spec.name in given
        }
        return {**taken, **past}

    def next_past(self, names: Sequence[str], outputs: Sequence[Array]) -> dict[str, Array]:
        """The cache after a run, from the outputs of these names."""
        by_name = dict(zip(names, outputs, strict=True))
        return {past: by_name[present] for past, present in self.past.items()}

    def check(self, tokens: Array) -> None:
        """Refuses tokens that are not in the vocabulary."""
        if not isinstance(tokens, np.ndarray):
            raise CalibrationError(
                f"tokens are a {type(tokens).__name__}; wanted one array of integers of shape "
                "(rows, tokens). Rows of equal length are stacked by numpy.stack."
            )
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu" or not tokens.size:
            raise CalibrationError(
                f"tokens are {tokens.dtype} of shape {tokens.shape}; wanted integers of shape "
                "(rows, tokens), at least one."
            )
        least, most = int(tokens.min()), int(tokens.max())
        if least < 0 or (self.vocabulary is not None and most >= self.vocabulary):
            raise CalibrationError(
                f"token {least if least < 0 else most} is not in the model's vocabulary of "
                f"{self.vocabulary} tokens. Was the text tokenized for another model?"
            )

    def check_length(self, length: int) -> None:
        """Refuses more positions than the model knows."""
        if self.context is not None and length > self.context:
            raise CalibrationError(
                f"{length} tokens are more than the {self.context} positions that the model knows "
                "(rows of its table of rotary angles). Use a shorter context."
            )


def _present(past: str) -> str:
    return past.replace("past_key_values", "present").replace("past", "present")
