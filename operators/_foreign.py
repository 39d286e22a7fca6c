"""Operators that read or give integers, known by name, without a kernel here."""

_NAMES = (
    "DequantizeBFP DequantizeWithOrder MatMulBnb4 MatMulFpQ4 MulInteger QuantizeBFP "
    "QuantizeWithOrder ReduceSumInteger"
)
NAMES = frozenset(_NAMES.split())
"""Operators of com.microsoft."""

PREFIXES = ("QLinear", "QOrdered", "DynamicQuantize", "MatMulInteger", "MatMulNBits")
"""Starts of names, of ai.onnx and com.microsoft: of operators to come, too."""
