"""The operator that marks where a quantized region ends: `torch.ops.onnxq.leave_integers`.

    y = x        exported as Max(x), one copy, which ONNX Runtime's optimizers leave alone

Behind it a model computes in float. Without it ONNX Runtime would take the float operators between
this end and the next QuantizeLinear for a part of the quantized region, and run them in integers.
`onnxq.qdq.tidy` removes it where nothing behind it is quantized again.
"""

from __future__ import annotations

import torch
from torch import Tensor


@torch.library.custom_op("onnxq::leave_integers", mutates_args=())
def leave_integers(x: Tensor) -> Tensor:
    """A copy of x: what follows it is float."""
    return x.clone()


@leave_integers.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)
