"""Division by the norm."""

from collections.abc import Iterable

import numpy as np

from onnxq.operator import Case, Reals
from onnxq.operator.examples import normal
from onnxq.operators._normalize import normalization

EUCLIDEAN = 2


def cases() -> Iterable[Case]:
    """Both norms, axes, rows of zeros."""
    x = normal(3, 5, 4)
    yield Case("plain", (x,))
    yield Case("sum of magnitudes", (x,), (), {"axis": 1, "p": 1})
    yield Case("first axis", (x,), (), {"axis": 0, "p": 2})
    zeros = x * (np.arange(3, dtype=np.float32) > 0).reshape(3, 1, 1)
    yield Case("rows of zeros", (zeros,))


@normalization("LpNormalization", cases=cases)
def lp_normalization(x: Reals, *, axis: int = -1, p: int = EUCLIDEAN) -> Reals:
    """Y = X / (sum |X|^p)^(1/p) along `axis`, p 1 or 2; where the sum is 0, Y is 0.

    ONNX LpNormalization-22. Results of either norm lie in [-1, 1], and are observed.
    """
    powers = np.square(x) if p == EUCLIDEAN else np.abs(x)
    total = powers.sum(axis, keepdims=True)
    norm = np.sqrt(total) if p == EUCLIDEAN else total
    return np.where(norm == 0, 0, x / norm)
