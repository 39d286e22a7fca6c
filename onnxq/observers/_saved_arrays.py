"""Arrays of an observer's saved state, checked: a file may hold anything."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Array, Singles
from onnxq.errors import CalibrationError

Saved = Mapping[str, npt.NDArray[np.generic]]
Integers = npt.NDArray[np.int64]


def array_of(state: Saved, key: str, kinds: str, ranks: tuple[int, ...]) -> Array:
    """The array of that key."""
    if key not in state:
        raise CalibrationError(f"saved state: '{key}' is missing; it has {', '.join(state)}.")
    array = np.asarray(state[key])
    if array.dtype.kind not in kinds or array.ndim not in ranks:
        wanted = "floats" if kinds == "f" else "whole numbers"
        raise CalibrationError(
            f"saved state: '{key}' is {array.dtype} of shape {array.shape}; wanted {wanted} of "
            f"rank {' or '.join(map(str, ranks))}."
        )
    return array


def floats_of(state: Saved, key: str, *ranks: int) -> Singles:
    """Finite float32 values of that key."""
    with np.errstate(over="ignore"):
        array = array_of(state, key, "f", ranks).astype(np.float32)
    _check(np.isfinite(array), key, "NaN or Inf")
    return array


def integers_of(state: Saved, key: str, *ranks: int) -> Integers:
    """Numbers from 0 on of that key, as int64."""
    array = array_of(state, key, "iu", ranks).astype(np.int64)  # beyond int64 wraps to negative
    _check(array >= 0, key, "negative numbers")
    return array


def min_max_of(state: Saved, *ranks: int) -> tuple[Singles, Singles]:
    """("min", "max") of ranges, of one shape; inf and -inf of rank 0: nothing was seen."""
    low, high = (array_of(state, key, "f", ranks).astype(np.float32) for key in ("min", "max"))
    if low.shape != high.shape:
        raise CalibrationError(
            f"saved state: 'min' has shape {low.shape}, 'max' {high.shape}; wanted equal ones."
        )
    if low.ndim == 0 and low == np.inf and high == -np.inf:
        return low, high
    _check(np.isfinite(low) & np.isfinite(high) & (low <= high), "min' and 'max", "no ranges")
    return low, high


def batches_of(state: Saved) -> list[int]:
    """Numbers of batches, "index"."""
    return [int(i) for i in integers_of(state, "index", 1)]


def _check(good: npt.NDArray[np.bool_], key: str, what: str) -> None:
    if not good.all():
        raise CalibrationError(f"saved state: '{key}' holds {what}.")
