"""Factors that smooth the input of products, and the exponent that serves best: arrays alone.

    Y = X W = (X diag(1/s)) (diag(s) W),      s[j] = max|X[:, j]|^a / max|W[j, :]|^(1 - a)

One scale holds all channels of X, so that a few large ones leave the others few codes; W has a
scale per column, which a large row widens. With a = 1 all channels of X get one range, with a = 0
all rows of W. (Xiao et al. 2022, "SmoothQuant", equation 4.) Which a is best depends on both
distributions: what activations gain, weights pay for (benchmarks/results/smooth.md). So each is
tried with the very quantizers, and what decides is the error of the rounded product, row by row

    mean over rows r of |Yq[r] - Y[r]|^2 / |Y[r]|^2

since a normalization behind brings every row, which is a token, to one size: a few tokens with huge
values would otherwise decide alone.

Where a bias is corrected behind, it takes the mean of the errors away, most of which is the
weight's: X has a mean, and rounding W errs on it in every row alike. What is left to decide by is

    mean over rows r of |E[r] - mean(E)|^2 / |Y[r]|^2        E = Yq - Y

which leaves more to the weight: exponents come out larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.core.arrays import Singles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxq.core.arrays import Reals

Rounding = Callable[[Singles], Singles]
"""Gives an array as its codes would have it."""
Noise = Callable[[Singles, Singles], float]
"""Error of rows, beside what was wanted."""

EXPONENTS = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Exponents that are tried beside none; errors change by less than half a dB between neighbours."""
SMALLEST = 2.0**-20
"""Share of the largest magnitude that a channel or a row counts as at least, for finite factors."""
QUIET = 1e-3
"""Share of the median row's power that a row counts as at least: below, its error is nothing."""

OUTPUTS = 256
"""Outputs of a weight that are looked at, evenly spread: an error of X is in all of them alike."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """One of the products that read X.

    Attributes:
        weight: float32, as its node has it.
        undone: factors of the weight, which broadcast, that undo those that X is divided by.
        rounded: the weight as its codes would have it.
        rows: X in matrices (groups, places, inputs).
        matrix: the weight in matrices (groups, outputs, inputs).
        noise: of its results.
    """

    weight: Singles
    undone: Callable[[Reals], Reals]
    rounded: Rounding
    rows: Callable[[Singles], Singles]
    matrix: Callable[[Singles], Singles]
    noise: Noise

    def largest(self, channels: int) -> Reals:
        """(channels,): largest magnitude that the weight has for each channel of X."""
        labels = np.rint(self.undone(np.arange(1.0, channels + 1))).astype(np.int64) - 1
        found = np.zeros(channels)
        np.maximum.at(found, np.broadcast_to(labels, self.weight.shape), np.abs(self.weight))
        return found


def smoothing_factors(x_max: Reals, w_max: Reals, exponent: float) -> Reals:
    """S = x_max^a / w_max^(1 - a), shape (channels,), all above 0.

    Args:
        x_max: (channels,), largest magnitude of each channel of X.
        w_max: (channels,), largest magnitude in each row of W.
        exponent: a, from 0 to 1.
    """
    x, w = (np.maximum(v, SMALLEST * max(float(v.max(initial=0.0)), 1e-30)) for v in (x_max, w_max))
    return np.asarray(x**exponent / w ** (1 - exponent), np.float64)


def reach(maxima: Reals) -> Reals:
    """Magnitude that each channel may have in samples to come, (channels,).

    Half as many samples found less, by some factor; as many again may find more by as much:

        r[j] = m[j] * m[j] / l[j]        m, l: the larger and the smaller of the halves' maxima

    A channel that speaks always has r = m, or little more. One that hardly ever does is not blown
    up by what it happened to be, since a single sample with 30 times as much would then widen the
    one range of the tensor; none is taken for larger than the largest is.

    Args:
        maxima: (batches, channels), largest magnitudes.
    """
    if len(maxima) < 2:
        return np.asarray(maxima.max(0))
    halves = np.stack([maxima[::2].max(0), maxima[1::2].max(0)])
    most, least = halves.max(0), halves.min(0)
    grown = np.divide(most * most, least, out=np.full_like(most, np.inf), where=least > 0)
    return np.asarray(np.minimum(grown, most.max()), np.float64)


def row_noise(wanted: Singles, got: Singles) -> float:
    """Mean over rows of error power over power; arrays (rows, columns)."""
    power = np.square(wanted, dtype=np.float64).sum(1)
    error = np.square(got - wanted, dtype=np.float64).sum(1)
    least = QUIET * float(np.median(power)) if power.size else 0.0
    seen = power > 0
    return float((error[seen] / np.maximum(power[seen], least)).mean()) if seen.any() else 0.0


def varying_noise(wanted: Singles, got: Singles) -> float:
    """`row_noise` of what is left when a bias has taken the mean of the errors away."""
    return row_noise(wanted, got - (got - wanted).mean(0))


def product_noise(
    x: Singles, factors: Reals, rounded: Rounding, products: Sequence[Product], axis: int
) -> float:
    """Mean noise of the products of X / s by s W, both rounded.

    Args:
        x: with its channels on that axis.
        factors: s, (channels,).
        rounded: X / s as its codes would have it.
        products: that read X.
        axis: of the channels.
    """
    shape = [1] * x.ndim
    shape[axis] = -1
    x_rounded = rounded((x / factors.reshape(shape)).astype(np.float32))
    noises = []
    for product in products:
        weight = product.rounded((product.weight * product.undone(factors)).astype(np.float32))
        wanted, got = (
            np.matmul(product.rows(seen), _some_outputs(product.matrix(w)).swapaxes(1, 2))
            for seen, w in ((x, product.weight), (x_rounded, weight))
        )
        noises += [product.noise(*group) for group in zip(wanted, got, strict=True)]
    return float(np.mean(noises))


def _some_outputs(matrix: Singles) -> Singles:
    return matrix[:, :: max(1, matrix.shape[1] // OUTPUTS)]
