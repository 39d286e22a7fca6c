"""Integer biases must be at the scale of the sums that they are added to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ModelError
from onnxq.qdq.read import BIAS, dequantizer, qparams_of
from onnxq.qparams import QParams, sum_scale

if TYPE_CHECKING:
    import onnx_ir as ir

WITH_BIAS = ("Conv", "Gemm", "ConvTranspose")
SAME = 1e-6  # relative: float32 products may have been rounded in another order


def check_bias(node: ir.Node) -> None:
    """Passes a node whose bias is at x_scale * w_scale: ONNX Runtime adds its integers as they are.

    Raises:
        ModelError: it is at another scale: the module was filled with another input_scale.
    """
    if node.op_type not in WITH_BIAS or len(node.inputs) <= BIAS:
        return
    sources = [dequantizer(value) for value in node.inputs[: BIAS + 1]]
    x, w, b = (None if source is None else qparams_of(source) for source in sources)
    if not (isinstance(x, QParams) and isinstance(w, QParams) and isinstance(b, QParams)):
        return
    wanted = sum_scale(x, w)
    if wanted.ndim:  # groups of a transposed convolution share scales
        wanted = np.tile(wanted, b.scale.size // wanted.size)
    if np.allclose(b.scale, wanted, rtol=SAME, atol=0):
        return
    index = int(np.argmax(np.abs(np.broadcast_to(b.scale, wanted.shape) / wanted - 1)))
    stored = np.broadcast_to(b.scale, wanted.shape).flat[index]
    source = sources[BIAS]
    integers = None if source is None else source.inputs[0]
    raise ModelError(
        f"bias '{'' if integers is None else integers.name}' is stored at scale {stored:.6g}; its "
        "input "
        f"and weight have {wanted.flat[index]:.6g}. Give set_weight_bias the input_scale "
        f"{float(x.scale.flat[0]):.6g} of the tensor that the layer reads."
    )
