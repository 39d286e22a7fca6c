"""The recurrence of DynamicQuantizeLSTM in one direction, to the bit.

float32 around products of codes, rounded after each step (no fused multiply-add but in the
activations).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxq.operators._gemm import Floats, centred, integer_matmul
from onnxq.operators._pairs import product_correction
from onnxq.operators.dynamic_quantize_linear import dynamic_qparams
from onnxq.qparams import quantize
from onnxq.targets.accumulation import EXACT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.operators._activations import Activation
    from onnxq.qparams import IntArray
    from onnxq.targets.accumulation import Accumulator

Lengths = npt.NDArray[np.int32]

OP = "DynamicQuantizeLSTM"
GATES = 4  # input, output, forget, cell: i o f c


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """One direction's W or R (inputs, 4 H): float32 without the zero point, and codes as stored.

    scale is of rank 0 or (4 H,).
    """

    values: Floats
    scale: Floats
    codes: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One direction of the network; bias (4, H), peepholes (3, H) as i, o, f, None where absent."""

    w: Weights
    r: Weights
    bias: Floats | None
    peepholes: Floats | None
    functions: Sequence[Activation]
    clip: np.float32
    input_forget: int


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """h and c of a batch, (N, H)."""

    h: Floats
    c: Floats


def run_direction(
    x: Floats,
    lengths: Lengths,
    cell: Cell,
    start: State,
    reverse: bool,
    accumulator: Accumulator = EXACT,
) -> tuple[Floats, Floats, Floats]:
    """Y (T, N, H), Y_h and Y_c (N, H) of one direction."""
    steps, batch, _ = x.shape
    x = _reversed(x, lengths) if reverse else x
    longest = int(lengths.max(initial=0))
    hidden = len(cell.r.values)
    projected = _product(x[:longest].reshape(longest * batch, x.shape[2]), cell.w, accumulator)
    z = projected.reshape(longest, batch, GATES, hidden)
    y = np.zeros((steps, batch, hidden), np.float32)
    final = State(np.zeros((batch, hidden), np.float32), np.zeros((batch, hidden), np.float32))
    state = start
    for t in range(longest):
        recurrent = _product(state.h, cell.r, accumulator).reshape(batch, GATES, hidden)
        state = _step(np.asarray(z[t] + recurrent), state.c, cell)
        y[t] = np.where((t < lengths)[:, None], state.h, 0)
        state = State(y[t], state.c)
        last = lengths == t + 1
        final.h[last], final.c[last] = state.h[last], state.c[last]
    return (_reversed(y, lengths) if reverse else y), final.h, final.c


def _product(x: Floats, weights: Weights, accumulator: Accumulator) -> Floats:
    """float32(sum q_x w) * (x_scale * w_scale[n]), (rows, 4 H)."""
    qparams = dynamic_qparams(OP, x)
    codes = quantize(x, qparams)
    total = integer_matmul(centred(codes, qparams), weights.values)
    if not accumulator.exact:
        change = product_correction(codes, weights.codes, accumulator)
        total = total if change is None else np.asarray(total + change)
    return np.asarray(total.astype(np.float32) * np.asarray(qparams.scale * weights.scale))


def _step(z: Floats, c: Floats, cell: Cell) -> State:
    """The state after one step; z (N, 4, H): products with X and H."""
    f, g, h = cell.functions
    i = f(_gate(z, 0, cell, c))
    forget = np.asarray(np.float32(1) - i) if cell.input_forget else f(_gate(z, 2, cell, c))
    c = np.asarray(c * forget + i * g(_gate(z, 3, cell, None)))
    o = f(_gate(z, 1, cell, c))
    return State(np.asarray(o * h(c)), c)


def _gate(z: Floats, gate: int, cell: Cell, c: Floats | None) -> Floats:
    """What one activation gets: peephole, then bias, then clip; ONNX Runtime's order."""
    total = z[:, gate]
    if c is not None and cell.peepholes is not None:
        total = np.asarray(total + c * cell.peepholes[gate])
    if cell.bias is not None:
        total = np.asarray(total + cell.bias[gate])
    return np.clip(total, -cell.clip, cell.clip)


def _reversed(x: Floats, lengths: Lengths) -> Floats:
    """Each sequence of x (T, N, ...) backwards, what lies behind its end in place."""
    result = x.copy()
    for n, length in enumerate(lengths):
        result[:length, n] = x[:length, n][::-1]
    return result
