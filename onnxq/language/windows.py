"""Text as windows of tokens, and as the samples that calibration and tuning take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxq.core.regular import why_no_file
from onnxq.errors import CalibrationError
from onnxq.graph import io
from onnxq.language.decoder import Decoder

if TYPE_CHECKING:
    import numpy.typing as npt
    import onnx
    import onnx_ir as ir

    from onnxq.core.arrays import Array

    Tokens = npt.NDArray[np.int64]


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


def as_samples(model: str | Path | onnx.ModelProto | ir.Model, rows: Tokens) -> dict[str, Array]:
    """Windows (N, tokens) as samples of a decoder: all its inputs, with an empty cache.

    Raises:
        ModelError: it is no decoder.
        CalibrationError: tokens or positions that the model does not know.
    """
    decoder = Decoder.of(io.load(model))
    decoder.check(rows)
    return decoder.feeds(rows, decoder.empty(*rows.shape))
