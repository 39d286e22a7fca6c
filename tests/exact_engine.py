"""Engine whose sums are exact on every machine, for tests that hold a model against its module."""

from __future__ import annotations

from onnxq.pytorch.exporting.agreement import onnx_runtime, reference_kernels
from tests.this_machine import SATURATES

exact = reference_kernels if SATURATES else onnx_runtime
"""ONNX Runtime where this machine adds exactly, else the reference kernels."""
