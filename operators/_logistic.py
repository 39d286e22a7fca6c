"""The logistic function and the hyperbolic tangent as ONNX Runtime computes them, to the bit.

Logistic (MLAS logistic.cpp): x clamped to [-18, 18], y = max(0, x P(x^2) / Q(x^2) + 1 / 2), in
float32 with fused multiply-add: an ulp or so from 1 / (1 + exp(-x)), which moves an integer whose
quotient lies next to a half. One entry of a table in ten thousand tables does. Nothing bounds it
above: some x near 17.9 give 1 + 2^-23.

Tangent (MLAS tanh.cpp): x clamped to [-9, 9], y = x P(x^2) / Q(x^2), likewise.
"""

from functools import reduce

import numpy as np
import numpy.typing as npt

from onnxq.operators._fma import fma

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


TANH_LIMIT = np.float32(9)
# MlasTanhConstants: alpha_13, alpha_11 ... alpha_1, and beta_6 ... beta_0
# fmt: off
TANH_ALPHAS = np.array((
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
), np.float32)
TANH_BETAS = np.array((
    1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03,
), np.float32)
# fmt: on


def tanh(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """ONNX Runtime's hyperbolic tangent of float32, any shape."""
    clamped = np.clip(x, -TANH_LIMIT, TANH_LIMIT)
    square = np.asarray(clamped * clamped)
    return np.asarray(clamped * polynomial(TANH_ALPHAS, square) / polynomial(TANH_BETAS, square))
