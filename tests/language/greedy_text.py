"""Greedy text of a decoder, in a loop of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.graph import io
from onnxq.language.decoder import LOGITS, Decoder
from onnxq.ort import runtime

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from onnxq.core.arrays import Array


def greedy(model: Path | ir.Model, prompt: Array, count: int) -> Array:
    """The likeliest tokens behind a prompt (tokens,), int64 (count,); a tie takes the first."""
    source = io.load(model)
    decoder = Decoder.of(source)
    past, tokens, found = decoder.empty(1), prompt[None], []
    with runtime.open_session(source, threads=1) as session:
        for _ in range(count):
            outputs = session.run(decoder.feeds(tokens, past))
            past = decoder.next_past(session.outputs, outputs)
            logits = outputs[session.outputs.index(LOGITS)]
            found.append(int(logits[0, -1].argmax()))
            tokens = np.array([found[-1:]], np.int64)
    return np.array(found, np.int64)
