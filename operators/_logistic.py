"""The logistic function as ONNX Runtime computes it (MLAS logistic.cpp), to the bit.

x clamped to [-18, 18], y = max(0, x P(x^2) / Q(x^2) + 1 / 2), in float32 with fused multiply-add:
an ulp or so from 1 / (1 + exp(-x)), which moves a code whose quotient lies next to a half. One
entry of a table in ten thousand tables does. Nothing bounds it above: some x near 17.9 give
1 + 2^-23.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from onnxq.operators._fma import fma

if TYPE_CHECKING:
    import numpy.typing as npt

LIMIT = np.float32(18)
# MlasLogisticConstants: alpha_9, alpha_7 ... alpha_1, and beta_10, beta_8 ... beta_0
# fmt: off
ALPHAS = np.array((
    4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05, 8.51377133304701e-03,
    2.48287947061529e-01,
), np.float32)
BETAS = np.array((
    6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06, 1.70198817374094e-03,
    1.16817656904453e-01, 9.93151921023180e-01,
), np.float32)
# fmt: on


def logistic(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """ONNX Runtime's 1 / (1 + exp(-x)) of float32, any shape."""
    clamped = np.clip(x, -LIMIT, LIMIT)
    square = np.asarray(clamped * clamped)
    numerator = clamped * polynomial(ALPHAS, square)
    return np.asarray(np.maximum(numerator / polynomial(BETAS, square) + np.float32(0.5), 0))


def polynomial(
    coefficients: npt.NDArray[np.float32], x: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Horner's scheme, highest power first; one rounding per step."""
    first = np.full(x.shape, coefficients[0], np.float32)
    return reduce(lambda total, c: fma(total, x, c), coefficients[1:], first)
