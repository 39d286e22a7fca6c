"""Layers with int8 weights, float32 in and out.

Linear, LSTM and the cells quantize their activations when they run; GRU, RNN and convolutions
compute in float, where ONNX Runtime has no integer kernel or a slower one.
"""

from onnxq.pytorch.nn.quantized.dynamic.cells import GRUCell, LSTMCell, RNNCell
from onnxq.pytorch.nn.quantized.dynamic.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from onnxq.pytorch.nn.quantized.dynamic.linear import Linear
from onnxq.pytorch.nn.quantized.dynamic.recurrent import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "GRUCell",
    "LSTMCell",
    "Linear",
    "RNNCell",
]
