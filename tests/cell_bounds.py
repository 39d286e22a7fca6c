"""How far LSTM, GRU and RNN cells in integers can be from float, step by step; torch's gate order.

Both MatMuls of a step are bounded by `matmul_error`. sigma has the slope 1/4 at most, tanh 1:

    RNN     h' = tanh(p + q)               |dh'| <= dp + dq
    GRU     n = tanh(p_n + r q_n)          |dn| <= dp_n + r dq_n + dr (|q_n| + dq_n)
            h' = (1 - z) n + z h           |dh'| <= (1 - z) dn + z dh + dz (|h - n| + dh + dn)
    LSTM    c' = f c + i g                 |dc'| <= f dc + df (|c| + dc) + i dg + di (|g| + dg)
            h' = o tanh(c')                |dh'| <= o dc' + do |tanh(c')| + do dc'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.operators.recurrent_bound import ROUNDING, matmul_error, sigmoid

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals

QMAX = 64  # the narrowest integers that onnxq stores in 8 bits: scales are no larger
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class Cell:
    """Weights as torch has them: w (gates * H, I), r (gates * H, H), biases (gates * H,)."""

    kind: str
    w: Reals
    r: Reals
    wb: Reals
    rb: Reals

    def bound(self, x: Reals) -> tuple[Reals, Reals]:
        """(h after the last step in float64, how far it may be off), for x (T, N, I)."""
        hidden = self.r.shape[1]
        h = c = np.zeros((x.shape[1], hidden))
        dh = dc = np.zeros_like(h)
        for step in x:
            p, dp = step @ self.w.T + self.wb, _error(step, 0.0, self.w)
            q, dq = h @ self.r.T + self.rb, _error(h, dh, self.r)
            if self.kind == "RNN":
                h, dh = np.tanh(p + q), dp + dq
            elif self.kind == "GRU":
                h, dh = _gru(p, dp, q, dq, h, dh)
            else:
                h, dh, c, dc = _lstm(p + q, dp + dq, c, dc)
            dh = np.minimum(dh + ROUNDING, 2)
        return h, dh


def _error(x: Reals, error: Reals | float, w: Reals) -> Reals:
    return matmul_error(x, error, w.T, np.abs(w).max(1) / QMAX)


def _gru(p: Reals, dp: Reals, q: Reals, dq: Reals, h: Reals, dh: Reals) -> tuple[Reals, Reals]:
    two = 2 * h.shape[1]
    r, z = np.split(sigmoid(p[:, :two] + q[:, :two]), 2, axis=1)
    dr, dz = np.split(np.minimum((dp[:, :two] + dq[:, :two]) / 4, 1), 2, axis=1)
    n = np.tanh(p[:, two:] + r * q[:, two:])
    dn = dp[:, two:] + r * dq[:, two:] + dr * (np.abs(q[:, two:]) + dq[:, two:])
    dn = np.minimum(dn, 2)
    return (1 - z) * n + z * h, (1 - z) * dn + z * dh + dz * (np.abs(h - n) + dh + dn)


def _lstm(s: Reals, ds: Reals, c: Reals, dc: Reals) -> tuple[Reals, Reals, Reals, Reals]:
    i, f, g, o = np.split(s, 4, axis=1)
    di, df, dg, do = np.split(ds, 4, axis=1)
    i, f, o, g = sigmoid(i), sigmoid(f), sigmoid(o), np.tanh(g)
    di, df, do = (np.minimum(d / 4, 1) for d in (di, df, do))
    dg = np.minimum(dg, 2)
    new = f * c + i * g
    dnew = f * dc + df * (np.abs(c) + dc) + i * dg + di * (np.abs(g) + dg)
    return o * np.tanh(new), o * dnew + do * (np.abs(np.tanh(new)) + dnew), new, dnew
