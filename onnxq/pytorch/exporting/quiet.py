"""Contains what torch's exporter says about itself, message by message; all else passes."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from typing import TYPE_CHECKING

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
)


@contextlib.contextmanager
def quiet_exporter() -> Iterator[None]:
    """A context in which torch.onnx.export is silent about its own internals.

    Warnings are held back until it ends, so that a caller's "error" filter cannot break torch half
    way; those that are not about torch itself are then given to the caller's filters.
    """
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings(record=True) as held:
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
