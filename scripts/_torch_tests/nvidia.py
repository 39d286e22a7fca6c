"""pytorch_quantization with onnxq's modules in the place of its own, on the CPU.

Its layers (QuantLinear, QuantConv2d, Clip...) are its own, of the folder; the descriptor, the
functions, the quantizer and the calibrators are those of onnxq.pytorch.tensor_quant.
"""

from __future__ import annotations

import re
import sys
import unittest
from types import ModuleType
from typing import NoReturn

_ON_THE_CPU = (
    (re.compile(r"\.cuda\(\)"), ""),
    (re.compile(r"""device=(["'])cuda\1"""), "device='cpu'"),
    (re.compile(r"torch\.cuda\.FloatTensor"), "torch.FloatTensor"),
)

VERSION = "2.2.1"


def on_the_cpu(source: str) -> str:
    """The text of a test file without the moves to a GPU."""
    for pattern, replacement in _ON_THE_CPU:
        source = pattern.sub(replacement, source)
    return source


class _CudaExtension(ModuleType):
    """Stands for NVIDIA's compiled kernels, which are no part of what is tested."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unittest.SkipTest(f"needs the compiled kernel {name}")


def install() -> None:
    """Puts onnxq's modules under the names of pytorch_quantization's."""
    from onnxq.pytorch import tensor_quant
    from onnxq.pytorch.tensor_quant import calibrators

    version = ModuleType("pytorch_quantization.version")
    version.__dict__["__version__"] = VERSION
    quantizer = ModuleType("pytorch_quantization.nn.modules.tensor_quantizer")
    quantizer.__dict__["TensorQuantizer"] = tensor_quant.TensorQuantizer
    quantizer.__dict__["__all__"] = ["TensorQuantizer"]
    calib = ModuleType("pytorch_quantization.calib")
    calib.__dict__.update(vars(calibrators))
    sys.modules |= {
        "pytorch_quantization.version": version,
        "pytorch_quantization.cuda_ext": _CudaExtension("pytorch_quantization.cuda_ext"),
        "pytorch_quantization.tensor_quant": tensor_quant,
        "pytorch_quantization.nn.modules.tensor_quantizer": quantizer,
        "pytorch_quantization.calib": calib,
    }
