"""A data type: 6-bit weights, stored in int8."""

from __future__ import annotations

import numpy as np

from onnxq.dtypes import QDType, register_qdtype

INT6 = register_qdtype(
    QDType("int6", bits=6, signed=True, storage=np.dtype(np.int8), onnx="INT8", min_opset=10)
)
"""-32 to 31.

In the model they are int8 integers, which ONNX Runtime multiplies as fast as any; what they are for
is what you do next with the file: 6 bits of entropy compress to three quarters."""
