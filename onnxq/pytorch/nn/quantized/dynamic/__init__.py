"""Layers with int8 weights whose activations are quantized when they run; float32 in and out."""

from onnxq.pytorch.nn.quantized.dynamic.cells import GRUCell, LSTMCell, RNNCell
from onnxq.pytorch.nn.quantized.dynamic.linear import Linear
from onnxq.pytorch.nn.quantized.dynamic.recurrent import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "Linear", "RNNCell"]
