"""Small quantized tensors that several tests look at."""

from __future__ import annotations

import numpy as np

from onnxq import dtypes, qtensor
from onnxq.qparams import per_tensor
from onnxq.qtensor import (
    QTensor,
    quantize_per_channel,
    quantize_per_tensor,
)

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
INTEGERS = [t for t in dtypes.all_qdtypes() if t.is_integer]


def per_tensor_quantized() -> QTensor:
    return quantize_per_tensor(X, 0.05, 10, qtensor.quint8)


def per_channel_quantized() -> QTensor:
    return quantize_per_channel(X, [0.1, 0.2, 0.3], [0, 1, 2], 1, qtensor.qint8)


def row(*integers: int) -> QTensor:
    return QTensor(np.array(integers, np.uint8), per_tensor(0.5, 0, qtensor.quint8))
