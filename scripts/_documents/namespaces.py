"""The two namespaces that a check compares, without types: it asks both for the same names."""

from importlib import import_module
from typing import Any

ours: Any = import_module("onnxq.pytorch.quantization")
theirs: Any = import_module("torch.ao.quantization")
