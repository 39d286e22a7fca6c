"""Layers with int8 weights, float32 in and out.

Linear, LSTM and the cells quantize their activations when they run; GRU, RNN and convolutions
compute in float, where ONNX Runtime has no integer kernel or a slower one.
"""

from onnxq.pytorch.nn.quantized.dynamic import conv
from onnxq.pytorch.nn.quantized.dynamic.cells import GRUCell, LSTMCell, RNNCell
from onnxq.pytorch.nn.quantized.dynamic.conv import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.nn.quantized.dynamic.linear import Linear
from onnxq.pytorch.nn.quantized.dynamic.recurrent import GRU, LSTM, RNN

__all__ = sorted(["GRU", "LSTM", "RNN", *conv.__all__, "GRUCell", "LSTMCell", "Linear", "RNNCell"])
