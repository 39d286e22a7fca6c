"""GRU and RNN in float32, as ONNX Runtime computes them within rounding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.operator import Array, NodeCall, Singles
from onnxq.operators._activations import FUNCTIONS, Activation
from onnxq.operators._cells import clip_limit
from onnxq.operators._logistic import tanh

SLOTS = 6  # X, W, R, B, sequence_lens, initial_h


@dataclass(frozen=True, slots=True, eq=False)
class FloatCell:
    """One direction: R (G H, H), Rb (G H,), its functions and the bound of what goes into them."""

    r: Singles
    rb: Singles
    functions: Sequence[Activation]
    clip: float | None

    def gate(self, index: int, x: Singles) -> Singles:
        """One of the functions, x clipped first where the node says so."""
        limit = self.clip
        return apply(self.functions[index], x if limit is None else np.clip(x, -limit, limit))


Step = Callable[[FloatCell, "Singles", "Singles"], "Singles"]
"""(cell, P_t (N, G H), h_t-1 (N, H)) -> h_t."""


def apply(function: Activation, x: Singles) -> Singles:
    """function(x), float32."""
    alpha, beta = np.float32(function.alpha), np.float32(function.beta)
    if function.name == "elu":
        return np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0)))
    if function.name == "softplus":
        return np.logaddexp(x, np.float32(0))
    if function.name == "scaledtanh":
        return np.asarray(alpha * tanh(np.asarray(beta * x)))
    return FUNCTIONS[function.name](x, alpha, beta)


def run(
    call: NodeCall, step: Step, functions: Sequence[Sequence[Activation]]
) -> tuple[Array, Array]:
    """Y (T, D, N, H) and Y_h (D, N, H), in the node's layout.

    Y is 0 from a sequence's length on; Y_h is the state after its last step, 0 if it has none.
    """
    x, w, r, b, lengths, start = (list(call.inputs) + [None] * SLOTS)[:SLOTS]
    if x is None or w is None or r is None or x.ndim != 3 or w.ndim != 3 or r.ndim != 3:
        raise call.shape_error("X, W and R of rank 3 are needed.")
    batch_first = call.integer("layout", 0) != 0
    time_first = np.swapaxes(x, 0, 1) if batch_first else x
    steps, batch, _ = time_first.shape
    count, hidden = r.shape[0], r.shape[2]
    if w.shape[:2] != r.shape[:2] or w.shape[2] != x.shape[2] or count != len(functions):
        raise call.shape_error(
            f"X {x.shape}, W {w.shape} and R {r.shape} do not fit together for "
            f"{len(functions)} direction(s)."
        )
    sizes = np.full(batch, steps) if lengths is None else np.asarray(lengths, np.int64)
    if sizes.shape != (batch,) or sizes.max(initial=0) > steps or sizes.min(initial=0) < 0:
        raise call.shape_error(f"lengths {sizes} for a batch of {batch} and {steps} steps.")
    first = np.zeros((count, batch, hidden), np.float32)
    if start is not None:
        first = np.asarray(np.swapaxes(start, 0, 1) if batch_first else start, np.float32)
    bias = np.zeros((count, 2 * r.shape[1]), np.float32) if b is None else np.asarray(b)
    y = np.zeros((steps, count, batch, hidden), np.float32)
    last = np.zeros((count, batch, hidden), np.float32)
    for d in range(count):
        wb, rb = np.split(bias[d], 2)
        cell = FloatCell(np.asarray(r[d]), rb, functions[d], clip_limit(call))
        backward = d == 1 or call.text("direction", "forward") == "reverse"
        projected = time_first @ np.asarray(w[d]).T + wb
        h = first[d]
        for t in reversed(range(steps)) if backward else range(steps):
            going = (t < sizes)[:, None]
            h = np.where(going, step(cell, projected[t], h), h)
            y[t, d] = np.where(going, h, 0)
        last[d] = np.where((sizes > 0)[:, None], h, 0)
    if batch_first:
        return np.transpose(y, (2, 0, 1, 3)), np.swapaxes(last, 0, 1)
    return y, last
