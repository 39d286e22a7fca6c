"""The torch operator of a product whose weight is stored in blocks: `torch.ops.onnxq.*`.

    matmul_n_bits    x @ w.T + bias     com.microsoft MatMulNBits, accuracy_level 0

It computes in float32 on the tensor's device, with the weight that the training rounded to.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

BYTE_BITS = 8


@torch.library.custom_op("onnxq::matmul_n_bits", mutates_args=())
def matmul_n_bits(
    x: Tensor,
    integers: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    bias: Tensor | None,
    inputs: int,
    bits: int,
    block: int,  # noqa: ARG001  # the integers' shape has it; the ONNX node wants the number
) -> Tensor:
    """The product x @ w.T + bias, float32 (..., outputs).

    Args:
        x: float32 (..., inputs).
        integers: uint8 (outputs, blocks, block * bits / 8), the first integer in the low bits.
        scales: float32 (outputs * blocks,).
        zero_points: uint8, each row of blocks packed as integers are, up to a whole byte, flat;
            None: 2^(bits - 1).
        bias: float32 (outputs,), or None.
        inputs: length of the rows of w, without what fills up the last block.
        bits: 2, 4 or 8.
        block: how many inputs share a scale.
    """
    return linear(x, real_weight(integers, scales, zero_points, inputs, bits), bias)


def real_weight(
    integers: Tensor, scales: Tensor, zero_points: Tensor | None, inputs: int, bits: int
) -> Tensor:
    """The weight (q - zero point) * scale, float32 (outputs, inputs); see `matmul_n_bits`."""
    outputs, blocks, _ = integers.shape
    wide = _unpacked(integers, bits).to(torch.int32)  # (outputs, blocks, block)
    if zero_points is None:
        points = wide.new_full((1, 1), 1 << (bits - 1))
    else:
        points = _unpacked(zero_points.reshape(outputs, -1), bits)[:, :blocks].to(torch.int32)
    real = (wide - points[..., None]).float() * scales.reshape(outputs, blocks, 1)
    return real.reshape(outputs, -1)[:, :inputs]


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Integers of bytes along the last axis, low bits first."""
    shifts = torch.arange(0, BYTE_BITS, bits, dtype=torch.uint8, device=packed.device)
    parts = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.flatten(-2)


@matmul_n_bits.register_fake
def _(
    x: Tensor,
    integers: Tensor,
    scales: Tensor,  # noqa: ARG001  # the operator's signature
    zero_points: Tensor | None,  # noqa: ARG001  # likewise
    bias: Tensor | None,  # noqa: ARG001  # likewise
    inputs: int,  # noqa: ARG001  # likewise
    bits: int,  # noqa: ARG001  # likewise
    block: int,  # noqa: ARG001  # likewise
) -> Tensor:
    return x.new_empty((*x.shape[:-1], integers.shape[0]))
