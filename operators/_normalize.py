"""Normalization by statistics of the data itself, in float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

EPSILON = 1e-5  # of the ONNX schemas


def normalized(x: Reals, axes: tuple[int, ...], epsilon: float) -> Reals:
    """(x - mean) / sqrt(variance + epsilon), both over the axes; shape of x."""
    if not x.size:
        return x
    centred = x - x.mean(axes, keepdims=True)
    return root_mean_square_normalized(centred, axes, epsilon)


def root_mean_square_normalized(x: Reals, axes: tuple[int, ...], epsilon: float) -> Reals:
    """X / sqrt(mean(x^2) + epsilon) over the axes; shape of x."""
    if not x.size:
        return x
    return np.asarray(x / np.sqrt(np.square(x).mean(axes, keepdims=True) + epsilon))


def per_channel(values: Reals, rank: int) -> Reals:
    """(channels,) as (channels, 1, ...): broadcasts along axis 1 of a tensor of that rank."""
    return values.reshape(-1, *[1] * (rank - 2))
