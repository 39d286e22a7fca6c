"""From PyTorch to onnxq: the only folder that imports torch (`pip install onnxq[torch]`)."""

from __future__ import annotations

from onnxq.errors import UnsupportedError

try:
    import torch as _torch  # noqa: F401  # first, so that a missing torch is one clear message
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise UnsupportedError(
        "onnxq.pytorch needs torch, which is not installed. Run: pip install 'onnxq[torch]'."
    ) from error

from onnxq.pytorch.dynamic import quantize_dynamic
from onnxq.pytorch.exporter import export
from onnxq.pytorch.factory import load_factory, load_module, load_weights
from onnxq.pytorch.inputs import Inputs, example_inputs, parse_input, read_inputs

__all__ = [
    "Inputs",
    "example_inputs",
    "export",
    "load_factory",
    "load_module",
    "load_weights",
    "parse_input",
    "quantize_dynamic",
    "read_inputs",
]
