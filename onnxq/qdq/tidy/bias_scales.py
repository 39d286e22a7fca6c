"""Integer biases must be at the scale of the sums that they are added to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ModelError
from onnxq.qdq.tidy.reading import BIAS, array_of, dequantizer
from onnxq.qparams import product_scale

if TYPE_CHECKING:
    import onnx_ir as ir

WITH_BIAS = ("Conv", "Gemm", "ConvTranspose")
SAME = 1e-6  # relative: float32 products may have been rounded in another order


def check_bias(node: ir.Node) -> None:
    """Passes a node whose bias is at x_scale * w_scale: ONNX Runtime adds its codes as they are.

    Raises:
        ModelError: it is at another scale: the module was filled with another input_scale.
    """
    if node.op_type not in WITH_BIAS or len(node.inputs) <= BIAS:
        return
    x, w, b = (dequantizer(value) for value in node.inputs[: BIAS + 1])
    if x is None or w is None or b is None:
        return
    x_scale, w_scale, b_scale = (array_of(part, 1) for part in (x, w, b))
    if x_scale is None or w_scale is None or b_scale is None:
        return
    wanted = product_scale(x_scale, w_scale)
    if wanted.ndim:  # groups of a transposed convolution share scales
        wanted = np.tile(wanted, b_scale.size // wanted.size)
    if np.allclose(b_scale, wanted, rtol=SAME, atol=0):
        return
    index = int(np.argmax(np.abs(np.broadcast_to(b_scale, wanted.shape) / wanted - 1)))
    stored = np.broadcast_to(b_scale, wanted.shape).flat[index]
    codes = b.inputs[0]
    raise ModelError(
        f"bias '{'' if codes is None else codes.name}' is stored at scale {stored:.6g}; its input "
        f"and weight have {wanted.flat[index]:.6g}. Give set_weight_bias the input_scale "
        f"{float(x_scale.flat[0]):.6g} of the tensor that the layer reads."
    )
