"""The hyperbolic tangent as ONNX Runtime computes it (MLAS tanh.cpp), to the bit.

x clamped to [-9, 9], y = x P(x^2) / Q(x^2), in float32 with fused multiply-add.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxq.operators._logistic import polynomial

if TYPE_CHECKING:
    import numpy.typing as npt

LIMIT = np.float32(9)
# MlasTanhConstants: alpha_13, alpha_11 ... alpha_1, and beta_6 ... beta_0
# fmt: off
ALPHAS = np.array((
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
), np.float32)
BETAS = np.array((
    1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03,
), np.float32)
# fmt: on


def tanh(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """ONNX Runtime's hyperbolic tangent of float32, any shape."""
    clamped = np.clip(x, -LIMIT, LIMIT)
    square = np.asarray(clamped * clamped)
    return np.asarray(clamped * polynomial(ALPHAS, square) / polynomial(BETAS, square))
