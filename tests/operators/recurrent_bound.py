"""How far GRU and RNN in integers can be from float, derived step by step along the float states.

A value x is quantized with the step s = range / 255: rint moves it by s / 2 at most, and the zero
point, which is rounded too, cuts s / 2 at most off the ends: |dx| <= s. A weight moves by half its
scale, |dw| <= t / 2. So for a MatMul of K terms, with x known up to d,

    |x^ w^ - x w| <= sum (d + s) (|w| + t / 2) + sum |x| t / 2,    s = (range(x) + 2 max d) / 255.

sigma has the slope 1/4 at most, tanh 1, both are bounded; and since the new state is
(1 - z) n + z h, |dh'| <= (1 - z) dn + z dh + dz (|h - n| + dh + dn).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.core.arrays import Reals

ROUNDING = 1e-5  # float32 sums of both sides, relative to results of magnitude 1


def matmul_error(x: Reals, error: Reals | float, w: Reals, scale: Reals) -> Reals:
    """Bound of x^ w^ - x w.

    Args:
        x: (N, K).
        error: how far the quantizer's input may be from x.
        w: (K, M).
        scale: (M,), of the integers of w.
    """
    known = np.broadcast_to(np.asarray(error, np.float64), x.shape)
    reach = max(x.max(initial=0), 0) - min(x.min(initial=0), 0) + 2 * known.max(initial=0)
    moved = np.asarray((known + reach / 255) @ (np.abs(w) + scale / 2))
    return np.asarray(moved + np.abs(x) @ np.broadcast_to(scale / 2, w.shape))


def sigmoid(x: Reals) -> Reals:
    """In float64."""
    return np.asarray(0.5 * (1 + np.tanh(x / 2)))


class Net:
    """One direction of a net in float64, with scales of its integer form; arrays as ONNX's."""

    def __init__(
        self, w: Reals, r: Reals, bias: Reals, w_scale: Reals, r_scale: Reals, *, linear: bool
    ) -> None:
        self.w, self.r = w.T, r.T
        self.wb, self.rb = np.split(bias, 2)
        self.w_scale, self.r_scale = w_scale, r_scale
        self.linear = linear

    def bound(self, x: Reals) -> tuple[Reals, Reals]:
        """States (T, N, H) in float64, and the bound of each."""
        steps, batch, size = x.shape
        flat = x.reshape(-1, size)
        p = (flat @ self.w + self.wb).reshape(steps, batch, -1)
        p_error = matmul_error(flat, 0.0, self.w, self.w_scale).reshape(p.shape)
        h = np.zeros((batch, self.r.shape[0]))
        d = np.zeros_like(h)
        states, errors = [], []
        step: Callable[..., tuple[Reals, Reals]] = self._rnn
        if self.r.shape[1] > self.r.shape[0]:
            step = self._gru
        for t in range(steps):
            h, d = step(p[t], p_error[t], h, d)
            d = np.minimum(d + ROUNDING, 2)  # both are within [-1, 1]
            states.append(h)
            errors.append(d)
        return np.array(states), np.array(errors)

    def _rnn(self, p: Reals, e: Reals, h: Reals, d: Reals) -> tuple[Reals, Reals]:
        error = e + matmul_error(h, d, self.r, self.r_scale)
        return np.tanh(p + h @ self.r + self.rb), error

    def _gru(self, p: Reals, e: Reals, h: Reals, d: Reals) -> tuple[Reals, Reals]:
        two = 2 * h.shape[1]
        early = p[:, :two] + h @ self.r[:, :two] + self.rb[:two]
        wrong = matmul_error(h, d, self.r[:, :two], self.r_scale[:two])
        z, r = np.split(sigmoid(early), 2, axis=1)
        dz, dr = np.split(np.minimum((e[:, :two] + wrong) / 4, 1), 2, axis=1)
        late, scale = self.r[:, two:], self.r_scale[two:]
        if self.linear:
            inner = h @ late + self.rb[two:]
            off = matmul_error(h, d, late, scale)
            n = np.tanh(p[:, two:] + r * inner)
            dn = e[:, two:] + r * off + dr * (np.abs(inner) + off)
        else:
            v, dv = r * h, dr * np.abs(h) + (r + dr) * d
            n = np.tanh(p[:, two:] + v @ late + self.rb[two:])
            dn = e[:, two:] + matmul_error(v, dv, late, scale)
        dn = np.minimum(dn, 2)
        return (1 - z) * n + z * h, (1 - z) * dn + z * d + dz * (np.abs(h - n) + d + dn)
