"""Modules made of parts that are quantized one by one."""

from onnxq.pytorch.nn.quantizable.activation import MultiheadAttention

__all__ = ["MultiheadAttention"]
