"""SQNR behind a node that magnifies errors: what is left of the signal there."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxq.observers.tensor_noise import decibels

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnxq.core.arrays import Array, Reals
    from onnxq.observers import FloatHistogramObserver, NormalizationObserver
    from onnxq.operator import Curve
    from onnxq.static.noise.error import Error

# Gauss-Hermite: five errors of a normal distribution of variance 1 with their shares
_ERRORS, _SHARES = np.polynomial.hermite_e.hermegauss(5)
_SHARES = _SHARES / _SHARES.sum()


def of_curve(
    curve: Curve, seen: FloatHistogramObserver, origins: tuple[float, ...]
) -> Callable[[Error], float]:
    """SQNR of f(x + e); e is normal, and x + e stays within the range that x had."""

    def sqnr_db(error: Error) -> float:
        x, counts = seen.occupied()
        low, high = float(seen.min_val), float(seen.max_val)
        with np.errstate(all="ignore"):
            power = sum((a.mean() * np.abs(x) ** q for a, q in error.terms), np.zeros(x.shape))
            deviation = np.sqrt(np.where(np.isfinite(power), power, (high - low) ** 2))
            right = curve.function(x)
            middle = x + error.shift.mean()
            moved = np.clip(middle[:, None] + deviation[:, None] * _ERRORS, low, high)
            squares = np.square(curve.function(moved) - right[:, None]) @ _SHARES
            dead = error.dead_share(x)
            lost = np.square(_of_floor(curve, error.floor, low, high) - right)
            squares = squares + dead * (lost - squares)
        good = np.isfinite(right) & np.isfinite(squares)
        total = counts[good].sum()
        if not total:
            return decibels(1.0, 0.0)
        shares, results = counts[good] / total, right[good]
        away = origins or (float(shares @ results),)
        signal = min(float(shares @ np.square(results - origin)) for origin in away)
        return decibels(signal, float(shares @ squares[good]))

    return sqnr_db


def _of_floor(curve: Curve, floor: float | None, low: float, high: float) -> float:
    """f(floor); where that has no bound, or the floor is not known, of the range's nearest end."""
    known = floor is not None and (curve.exponent is None or curve.exponent > 0)
    found = float(curve.function(np.asarray(floor))) if known else math.inf
    if math.isfinite(found):
        return found
    return float(curve.function(np.clip(floor or 0.0, low, high)))


def of_normalization(
    seen: NormalizationObserver, amplification: Array | None
) -> Callable[[Error], float]:
    """SQNR behind the normalization and its gain, for an error alike in all channels."""
    amplifications = (
        np.ones(())
        if amplification is None
        else _per_channel(amplification, seen.channel_power.size)
    )

    def sqnr_db(error: Error) -> float:
        return decibels(*seen.behind(error.constant, amplifications, error.clipped))

    return sqnr_db


def _per_channel(amplification: Array, channels: int) -> Reals:
    """Root mean square of the gain for each channel; one for all where it does not fit."""
    squares = np.square(amplification.astype(np.float64))
    if amplification.shape[-1:] == (channels,):
        return np.asarray(np.sqrt(squares.reshape(-1, channels).mean(axis=0)))
    return np.asarray(np.sqrt(squares.mean()))
