"""Layers with int8 weights, float32 in and out.

Linear, LSTM and the cells quantize their activations when they run; GRU, RNN and convolutions
compute in float, where ONNX Runtime has no integer kernel or a slower one.
"""

from typing import TYPE_CHECKING

from onnxq.pytorch.modules.refused_names import QUANTIZED_DYNAMIC, refusing
from onnxq.pytorch.nn.quantized.dynamic import conv
from onnxq.pytorch.nn.quantized.dynamic.cells import GRUCell as GRUCell
from onnxq.pytorch.nn.quantized.dynamic.cells import LSTMCell as LSTMCell
from onnxq.pytorch.nn.quantized.dynamic.cells import RNNCell as RNNCell
from onnxq.pytorch.nn.quantized.dynamic.conv import *  # noqa: F403  # its `__all__`
from onnxq.pytorch.nn.quantized.dynamic.linear import Linear as Linear
from onnxq.pytorch.nn.quantized.dynamic.recurrent import GRU as GRU
from onnxq.pytorch.nn.quantized.dynamic.recurrent import LSTM as LSTM
from onnxq.pytorch.nn.quantized.dynamic.recurrent import RNN as RNN

if not TYPE_CHECKING:
    __getattr__ = refusing(__name__, QUANTIZED_DYNAMIC)

__all__ = sorted(
    ["GRU", "LSTM", "RNN", *vars(conv)["__all__"], "GRUCell", "LSTMCell", "Linear", "RNNCell"]
)
