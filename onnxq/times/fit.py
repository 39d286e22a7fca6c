"""Time of work that was not measured, from work of the same kind that was.

    base(s) = c0 + sum(c[i] s[i]),  c >= 0           least squares of base / measured - 1
    time(s) = base(s) exp(sum(w r) / (sum(w) + FAR)) r: log(measured / base) of the measured ones

where w = 1 / (NEAR + d^2) and d is the distance of the logarithms of the sizes: at a measured point
the time is nearly the measured one, between two it passes from one to the other, and far away it is
the base. Every figure follows from the measured rows alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


NEAR = 0.05
"""Squared distance below which points are one: single measurements are noisy."""
FAR = 0.11
"""Weight of the base: that of a point three doublings away."""
LEAST_NS = 1.0
"""Smallest time that is told."""
MANY = 20
"""Rows beside which one more is little: the error of 50 pointwise convolutions is 0.054 so, 0.057
where each is left out of the base as well."""
ALONE = 1.0
"""Error of a kind of which one row is known: as good as none."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Times of one kind of work.

    Attributes:
        base: coefficients of 1 and the sizes, float64 (1 + sizes,).
        points: log2(1 + sizes) of what was measured, float64 (rows, sizes).
        residuals: log(measured / base), float64 (rows,).
    """

    base: Floats
    points: Floats
    residuals: Floats

    @classmethod
    def of(cls, sizes: Sequence[tuple[int, ...]], ns: Sequence[float]) -> Fit:
        """The fit of at least one measured row."""
        x, y = np.array(sizes, np.float64), np.array(ns, np.float64)
        return cls.with_base(least_positive(np.column_stack([np.ones(len(x)), x]), y), sizes, ns)

    @classmethod
    def with_base(
        cls, base: Sequence[float] | Floats, sizes: Sequence[tuple[int, ...]], ns: Sequence[float]
    ) -> Fit:
        """The fit of rows whose base is known; arguments as of `of`."""
        known, x, y = np.array(base), np.array(sizes, np.float64), np.array(ns, np.float64)
        residuals = np.log(y / (known[0] + x @ known[1:]))
        return cls(known, np.log2(1 + x), residuals)

    @property
    def error(self) -> float:
        """Mean of |log(predicted / measured)|, each row predicted without its own residual."""
        apart = np.square(self.points[:, None] - self.points[None]).sum(axis=-1)
        weights = 1 / (NEAR + apart)
        np.fill_diagonal(weights, 0)
        without = weights @ self.residuals / (weights.sum(axis=1) + FAR)
        return float(np.abs(self.residuals - without).mean())

    def ns(self, sizes: tuple[int, ...]) -> float:
        """Predicted nanoseconds."""
        x = np.array(sizes, np.float64)
        weights = 1 / (NEAR + np.square(self.points - np.log2(1 + x)).sum(axis=-1))
        residual = weights @ self.residuals / (weights.sum() + FAR)
        return max(float((self.base[0] + x @ self.base[1:]) * np.exp(residual)), LEAST_NS)


def least_positive(x: Floats, y: Floats) -> Floats:
    """The c >= 0 with the least sum of (x c / y - 1)^2, float64 (columns,)."""
    scaled = x / y[:, None]
    size = np.maximum(np.abs(scaled).max(axis=0), np.finfo(np.float64).tiny)
    scaled = scaled / size
    used = [i for i in range(x.shape[1]) if np.any(x[:, i])]
    best, least = np.zeros(x.shape[1]), np.inf
    for count in range(1, len(used) + 1):
        for columns in itertools.combinations(used, count):
            chosen = list(columns)
            found, *_ = np.linalg.lstsq(scaled[:, chosen], np.ones(len(y)), rcond=None)
            error = float(np.square(scaled[:, chosen] @ found - 1).sum())
            if found.min() > 0 and error < least:
                best, least = np.zeros(x.shape[1]), error
                best[chosen] = found
    best /= size
    return best


def error_of(sizes: Sequence[tuple[int, ...]], ns: Sequence[float]) -> float:
    """Mean of |log(predicted / measured)| over the rows, each predicted from all others.

    Where there are MANY rows, one of them hardly moves the base, which is then that of all.
    """
    if len(ns) >= MANY:
        return Fit.of(sizes, ns).error
    if len(ns) == 1:
        return ALONE
    off = []
    for i, measured in enumerate(ns):
        others = Fit.of([*sizes[:i], *sizes[i + 1 :]], [*ns[:i], *ns[i + 1 :]])
        off.append(abs(float(np.log(others.ns(sizes[i]) / measured))))
    return float(np.mean(off))
