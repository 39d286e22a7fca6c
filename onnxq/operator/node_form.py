"""Forms that a node of a float model can take in the quantized one."""

from __future__ import annotations

import enum


class NodeForm(enum.Enum):
    """Kind of numbers that a node reads, computes on and gives."""

    FLOAT = "float"
    """The node stays as it is."""
    INTEGER = "integer"
    """Codes in, codes out: its inputs and results have scales that calibration found."""
    FLOAT_RESULT = "float_result"
    """Codes in, float32 out: sums of products are scaled, and not rounded again."""
    DYNAMIC = "dynamic"
    """Float32 in and out; its activations are quantized when the model runs."""
    STORED = "stored"
    """Float32 in and out; its weights are integers in the file, and it computes in float."""
    WIDE = "wide"
    """Codes of 16 bits around it; ONNX Runtime computes in float between them."""
