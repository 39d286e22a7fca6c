"""Contains what torch's exporter says about itself, message by message; all else passes."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

# (category, start of the message as a regex, why a caller of `export` can do nothing about it)
_NOISE = (
    (FutureWarning, r"`isinstance\(treespec, LeafSpec\)`", "torch calls its own old pytree name"),
    (FutureWarning, r"_check_is_size will be removed", "torch's decompositions call an old check"),
    (UserWarning, r"# The axis name: .* will not be used", "two inputs share the batch, as asked"),
    (UserWarning, r"The tensor attributes? self\..*_flat_weights", "LSTM regroups its weights"),
    (UserWarning, r"The \.grad attribute of a Tensor that is not a leaf", "dynamo looks at all"),
)
_LOGGERS = (
    "torch.onnx._internal.exporter._registration",  # at every export: no torchvision is installed
    "onnxscript.optimizer._constant_folding",  # what it leaves alone in torch's own EmbeddingBag
    "onnx_ir.passes.common.initializer_deduplication",  # the same
    "torch.fx.experimental.symbolic_shapes",  # about a branch on values, which its error says, too
)
# what torch.export prints of a graph that it could not end, before it raises
_GRAPH = re.compile(r"\s*def forward\(self, \w+: \"")


class _WithoutGraphs:
    """A stream without torch's dumps of graphs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes the text, unless it is a graph."""
        return len(text) if _GRAPH.match(text) else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet_exporter() -> Iterator[None]:
    """A context in which torch.onnx.export is silent about its own internals.

    Warnings are held back until it ends, so that a caller's "error" filter cannot break torch half
    way; those that are not about torch itself are then given to the caller's filters.
    """
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    without_graphs = contextlib.redirect_stderr(cast("TextIO", _WithoutGraphs(sys.stderr)))
    with warnings.catch_warnings(record=True) as held, without_graphs:
        warnings.simplefilter("always")
        try:
            for name in levels:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
    for warning in held:
        if not _is_noise(warning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _is_noise(warning: warnings.WarningMessage) -> bool:
    text = str(warning.message)
    return any(
        issubclass(warning.category, category) and re.match(pattern, text)
        for category, pattern, _ in _NOISE
    )
