"""Bytes of the files that a model came in, which every ratio of sizes is of."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from onnxq.graph.folded import saved_by_writing_as_given
from onnxq.graph.saving import saved_bytes
from onnxq.graph.untrusted.scopes import all_tensors

_KEY = "onnxq.given_bytes"
"""Key in a model's `meta`, which is not saved."""


def note_size(model: ir.Model, path: Path) -> None:
    """Notes the bytes of the file that the model was read from, and of its external data."""
    model.meta[_KEY] = sum(p.stat().st_size for p in (path, *external_files(model)))


def given_size(model: ir.Model) -> int:
    """Bytes of the files that it was read from; of the one that `save` would write, if none."""
    known = model.meta.get(_KEY)
    return known or saved_bytes(model) - saved_by_writing_as_given(model)


def external_files(model: ir.Model) -> list[Path]:
    """The files that hold tensors of a model, in the order of first use."""
    tensors = [tensor for _, tensor in all_tensors(model)]
    external = [t for t in tensors if isinstance(t, ir.ExternalTensor) and t.size]
    return list(dict.fromkeys(Path(tensor.path) for tensor in external))
