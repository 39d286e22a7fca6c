"""The file that a model came in: its bytes, which every ratio of sizes is of, and its speed."""

from pathlib import Path

import onnx_ir as ir

from onnxq.graph.folded import saved_by_writing_as_given
from onnxq.graph.saving import saved_bytes
from onnxq.graph.untrusted.scopes import all_tensors

_BYTES, _PATH = "onnxq.given_bytes", "onnxq.given_path"
"""Keys in a model's `meta`, which is not saved."""


def note_file(model: ir.Model, path: Path) -> None:
    """Notes the file that the model was read from, its bytes and those of its external data."""
    model.meta[_PATH], model.meta[_BYTES] = path, _size(model, path)


def given_file(model: ir.Model) -> Path | None:
    """The file that the model was read from, if it is still there, and as large as it was."""
    path = model.meta.get(_PATH)
    if path is None or not path.is_file() or model.meta[_BYTES] != _size(model, path):
        return None
    return Path(path)


def given_size(model: ir.Model) -> int:
    """Bytes of the files that the model was read from; else of the one that `save` would write."""
    known = model.meta.get(_BYTES)
    return known or saved_bytes(model) - saved_by_writing_as_given(model)


def _size(model: ir.Model, path: Path) -> int:
    return sum(p.stat().st_size for p in (path, *external_files(model)))


def external_files(model: ir.Model) -> list[Path]:
    """The files that hold tensors of a model, in the order of first use."""
    tensors = [tensor for _, tensor in all_tensors(model)]
    external = [t for t in tensors if isinstance(t, ir.ExternalTensor) and t.size]
    return list(dict.fromkeys(Path(tensor.path) for tensor in external))
