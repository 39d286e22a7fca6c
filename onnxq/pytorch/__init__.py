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
from onnxq.pytorch.fake_quantize import (
    FakeQuantize,
    LearnableFakeQuantize,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
    fake_quantize_module,
)
from onnxq.pytorch.inputs import Inputs, example_inputs, parse_input, read_inputs

__all__ = [
    "FakeQuantize",
    "Inputs",
    "LearnableFakeQuantize",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "example_inputs",
    "export",
    "fake_quantize_module",
    "load_factory",
    "load_module",
    "load_weights",
    "parse_input",
    "quantize_dynamic",
    "read_inputs",
]
