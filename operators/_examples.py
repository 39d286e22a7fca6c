"""Arrays for the operators' cases: the same on every machine and run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def normal(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Normally distributed float32 of that shape."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> npt.NDArray[np.int64]:
    """A vector of int64: axes, shapes, pads."""
    return np.array(values, np.int64)
