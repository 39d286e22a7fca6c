"""The torch operators that quantize activations when a model runs: `torch.ops.onnxq.*`.

    dynamic_quantize_linear   integers, scale, zero point of a tensor   DynamicQuantizeLinear
    matmul_integer            int32 product of integers                 MatMulInteger
    dynamic_quantize_lstm     one layer                 com.microsoft DynamicQuantizeLSTM
    stored_recurrence         float GRU or RNN on int8 weights       Cast, Mul, GRU or RNN

Forward is onnxq's own kernel of the ONNX operator, on the CPU, so that it computes what ONNX
Runtime computes. There are no gradients: weights are integers.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from onnxq import catalog
from onnxq.dtypes import BYTE_BITS
from onnxq.operator import Array, AttributeValue, IntegerCall
from onnxq.operator.site import MICROSOFT
from onnxq.pytorch.numerics.torch_operator import torch_operator


def _computed(
    op_type: str,
    inputs: Sequence[Tensor | None],
    domain: str = "",
    attributes: Mapping[str, AttributeValue] | None = None,
) -> tuple[Array, ...]:
    found = catalog.find_integer(op_type, domain)
    assert found is not None, "onnxq has it"
    arrays: list[Any] = [None if x is None else x.detach().cpu().numpy() for x in inputs]
    return found.kernel(IntegerCall(op_type, arrays, attributes=attributes or {}))


def _integers_like(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    integers = torch.empty_like(x, dtype=torch.uint8)
    return integers, x.new_empty(()), integers.new_empty(())


@torch_operator("dynamic_quantize_linear", _integers_like)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(integers uint8, scale float32 (), zero point uint8 ()) that cover x and 0."""
    found = _computed("DynamicQuantizeLinear", [x])
    integers, scale, zero_point = (torch.from_numpy(np.array(part)).to(x.device) for part in found)
    return integers, scale, zero_point


def _matmul(a: Tensor, b: Tensor, *_: object) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=torch.int32)


@torch_operator("matmul_integer", _matmul)
def matmul_integer(
    a: Tensor, b: Tensor, a_zero_point: Tensor, b_zero_point: Tensor | None
) -> Tensor:
    """Int32 (..., N): sum over k of (a - a_zero_point) (b - b_zero_point)."""
    # float64 holds every sum of fewer than 2^36 products of integers exactly, and has fast kernels
    right = b.double() if b_zero_point is None else b.double() - b_zero_point.double()
    return ((a.double() - a_zero_point.double()) @ right).to(torch.int32)


def _y_h_and_c(x: Tensor, w: Tensor, r: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    state = (len(w), x.shape[1], r.shape[1])
    y = x.new_empty((*x.shape[:2], len(w) * r.shape[1]))
    return y, x.new_empty(state), x.new_empty(state)


@torch_operator("dynamic_quantize_lstm", _y_h_and_c)
def dynamic_quantize_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    w_scale: Tensor,
    w_zero_point: Tensor,
    r_scale: Tensor,
    r_zero_point: Tensor,
    direction: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """(y (T, N, D H), Y_h (D, N, H), Y_c (D, N, H)) as com.microsoft DynamicQuantizeLSTM.

    Args:
        x: float32 (T, N, I).
        w: integers (D, I, 4 H), gates i, o, f, c.
        r: integers (D, H, 4 H).
        b: float32 (D, 8 H), or None.
        initial_h: float32 (D, N, H); None: 0.
        initial_c: likewise.
        w_scale: float32 (D,) or (D, 4 H).
        w_zero_point: of the type of the integers, same shape.
        r_scale: as w_scale.
        r_zero_point: as w_zero_point.
        direction: "forward" or "bidirectional".
    """
    slots = [x, w, r, b, None, initial_h, initial_c, None]
    slots += [w_scale, w_zero_point, r_scale, r_zero_point]
    attributes: dict[str, AttributeValue] = {"hidden_size": r.shape[1], "direction": direction}
    found = _computed("DynamicQuantizeLSTM", slots, MICROSOFT, attributes)
    y, h, c = (torch.from_numpy(np.ascontiguousarray(part)).to(x.device) for part in found)
    return y.transpose(1, 2).flatten(2).clone(), h, c


def _y_and_h(x: Tensor, w: Tensor, r: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    directions, hidden = len(w), r.shape[2]
    y = x.new_empty((*x.shape[:2], directions * hidden))
    return y, x.new_empty((directions, x.shape[1], hidden))


@torch_operator("stored_recurrence", _y_and_h)
def stored_recurrence(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    initial_h: Tensor | None,
    w_scale: Tensor,
    r_scale: Tensor,
    kind: str,
    direction: str,  # noqa: ARG001  # the weights' shape has it; the ONNX node wants the word
) -> tuple[Tensor, Tensor]:
    """(y (T, N, D H), Y_h (D, N, H)) of a GRU or RNN, in float on dequantized weights.

    Args:
        x: float32 (T, N, I).
        w: integers (D, gates H, I), zero point 0; gates z, r, h of a GRU, as in ONNX.
        r: integers (D, gates H, H), likewise.
        b: float32 (D, 2 gates H), or None.
        initial_h: float32 (D, N, H); None: 0.
        w_scale: float32 (D, 1 or gates H, 1).
        r_scale: likewise.
        kind: "GRU", "RNN_TANH" or "RNN_RELU".
        direction: "forward" or "bidirectional".
    """
    h = x.new_zeros((len(w), x.shape[1], r.shape[2])) if initial_h is None else initial_h
    y, last = float_recurrence(kind, x, h, w.float() * w_scale, r.float() * r_scale, b)
    return y.clone(), last.clone()


def float_recurrence(
    kind: str, x: Tensor, states: Any, w: Tensor, r: Tensor, b: Tensor | None
) -> tuple[Tensor, ...]:
    """(y, final states) of one layer of torch's, its weights float32 in ONNX's order of gates."""
    biases = () if b is None else b.chunk(2, 1)
    parts = [in_torch_order(part, kind) for part in (w, r, *biases)]
    flat = [part[d] for d in range(len(w)) for part in parts]
    run: Callable[..., tuple[Tensor, ...]] = getattr(torch, kind.lower())
    return run(x, states, flat, bool(biases), 1, 0.0, False, len(w) > 1, False)


# ONNX's place of each of torch's gates: torch has r, z, n of a GRU and i, f, g, o of an LSTM
ONNX_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2), "RNN_TANH": (0,), "RNN_RELU": (0,)}


def in_onnx_order(rows: Tensor, kind: str) -> Tensor:
    """Rows of torch's gates, in ONNX's order: (gates H, ...)."""
    gates = rows.chunk(len(ONNX_GATES[kind]))
    return torch.cat([gates[i] for i in ONNX_GATES[kind]])


def in_torch_order(stacked: Tensor, kind: str) -> Tensor:
    """Gates back in torch's order, for each direction: (D, gates H, ...)."""
    order = ONNX_GATES[kind]
    gates = stacked.chunk(len(order), 1)
    return torch.cat([gates[order.index(i)] for i in range(len(order))], 1)


# --- The torch operator of a linear layer whose weight is stored in blocks: `torch.ops.onnxq.*`.
#
#     matmul_n_bits    x @ w.T + bias     com.microsoft MatMulNBits, accuracy_level 0
#
# It computes in float32 on the tensor's device, with the weight that the training rounded to.


@torch_operator(
    "matmul_n_bits", lambda x, integers, *_: x.new_empty((*x.shape[:-1], integers.shape[0]))
)
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
        zero_points: uint8, each row of blocks packed as integers are, up to a whole byte, flat; or
            float32, one for each scale; None: 2^(bits - 1).
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
    elif zero_points.dtype is torch.float32:
        points = zero_points.reshape(outputs, blocks)
    else:
        points = _unpacked(zero_points.reshape(outputs, -1), bits)[:, :blocks].to(torch.int32)
    real = (wide - points[..., None]).float() * scales.reshape(outputs, blocks, 1)
    return real.reshape(outputs, -1)[:, :inputs]


def _unpacked(packed: Tensor, bits: int) -> Tensor:
    """Integers of bytes along the last axis, low bits first."""
    shifts = torch.arange(0, BYTE_BITS, bits, dtype=torch.uint8, device=packed.device)
    parts = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.flatten(-2)


def _keep_weight(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001  # torch's
    _, integers, scales, zero_points, _, *sizes, _ = inputs
    ctx.save_for_backward(integers, scales, zero_points)
    ctx.sizes = sizes


def _through_weight(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient of x: grad @ w. The weight is integers, which stay as they are."""
    w = real_weight(*ctx.saved_tensors, *ctx.sizes)
    return grad @ w, *[None] * 7


torch.library.register_autograd("onnxq::matmul_n_bits", _through_weight, setup_context=_keep_weight)
