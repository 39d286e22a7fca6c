"""Contains what torch's exporter says about itself, message by message; all else passes."""

import contextlib
import logging
import re
import sys
import sysconfig
import textwrap
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import torch
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

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
_ASSIGNED = re.compile(r"The tensor attributes? (.+?) (?:was|were) assigned during export")
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
def quiet_exporter(exported: object = None) -> Iterator[None]:
    """A context in which torch.onnx.export is silent about its own internals.

    Warnings are held back until it ends, so that a caller's "error" filter cannot break torch half
    way; those that are not about torch itself are then given to the caller's filters.
    """
    by_torch = _assigned_by_torch(exported) if isinstance(exported, torch.nn.Module) else set()
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
        if not _is_noise(warning, by_torch):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _assigned_by_torch(module: torch.nn.Module) -> set[str]:
    """Attributes that the hooks of weight_norm and spectral_norm assign in each forward."""
    return {
        ".".join(filter(None, ("self", path, hook.name)))
        for path, part in module.named_modules()
        for hook in part._forward_pre_hooks.values()  # noqa: SLF001  # torch has no public name
        if isinstance(hook, WeightNorm | SpectralNorm)
    }


def _is_noise(warning: warnings.WarningMessage, by_torch: set[str]) -> bool:
    text = str(warning.message)
    assigned = _ASSIGNED.match(text)
    if assigned and by_torch.issuperset(assigned[1].split(", ")):
        return True
    return any(
        issubclass(warning.category, category) and re.match(pattern, text)
        for category, pattern, _ in _NOISE
    )


# --- The line of a user's own code that an error of torch's exporter came through.

_FOREIGN = (*torch.__path__, str(Path(__file__).resolve().parents[2]))  # torch and onnxq
_STANDARD = sysconfig.get_paths()["stdlib"]
_INSTALLED = sysconfig.get_paths()["purelib"]  # may lie in the other, and holds models, too
WIDTH = 100


def users_line(error: BaseException) -> str:
    """Place and text of the innermost line, as the end of a message; "" where there is none.

    At model.py:12, in forward: if y.sum() > 0:
    """
    found = ""
    cause: BaseException | None = error
    while cause is not None:
        for frame in traceback.extract_tb(cause.__traceback__):
            if _is_users(frame.filename):
                code = textwrap.shorten(frame.line or "", WIDTH, placeholder=" ...")
                found = f" At {frame.filename}:{frame.lineno}, in {frame.name}: {code}"
        cause = cause.__cause__
    return found


def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return False  # made at run time
    if file.startswith(_FOREIGN):
        return False
    return file.startswith(_INSTALLED) or not file.startswith(_STANDARD)
