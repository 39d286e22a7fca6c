"""A decoder that runs on ONNX Runtime: logits of windows, whole or with the cache."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import onnx
import onnx_ir as ir

from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError
from onnxq.graph import io
from onnxq.language.decoder import LOGITS, Decoder
from onnxq.ort import runtime


class TokenRun:
    """A session of a decoder; also a context manager that frees it.

    Args:
        model: a path, onnx.ModelProto or onnx_ir.Model, float or quantized.
        threads: of one run; None: one per core.
    Raises:
        ModelError: it is no decoder, or ONNX Runtime does not accept it.
    """

    def __init__(
        self, model: str | Path | onnx.ModelProto | ir.Model, threads: int | None = None
    ) -> None:
        source = io.load(model)
        self.decoder = Decoder.of(source)
        self._session = runtime.open_session(source, threads=threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def whole(self, tokens: Array) -> Array:
        """Logits (N, tokens, vocabulary) of tokens (N, tokens), in one run with an empty cache."""
        feeds = self.decoder.feeds(tokens, self.decoder.empty(len(tokens)))
        return self._session.run(feeds, [LOGITS])[0]

    def in_steps(self, tokens: Array, step: int) -> Iterator[Array]:
        """Logits of tokens (N, tokens), `step` of them a run, with the cache of those before."""
        if not self.decoder.past:
            raise CalibrationError(
                "the model has no cache (inputs past_key_values.I.key), so that it cannot go step "
                "by step. Export it with its cache, or run whole windows."
            )
        self.decoder.check_length(tokens.shape[1])
        past = self.decoder.empty(len(tokens))
        for start in range(0, tokens.shape[1], step):
            feeds = self.decoder.feeds(tokens[:, start : start + step], past, start)
            outputs = self._session.run(feeds)
            past = self.decoder.next_past(self._session.outputs, outputs)
            yield outputs[self._session.outputs.index(LOGITS)]
