"""ExactSums: sums of float32 numbers that do not depend on their order, as observers need them.

A float32 is m 2^p with m < 2^24 and 0 <= p < 253, in units of the smallest subnormal. m 2^p, at
most 2^56 after the shift within its limb of 32 bits, is added to two int64 limbs: additions of
integers, which are associative, up to 2^31 of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Reals
from onnxq.errors import CalibrationError
from onnxq.observers._saved_arrays import integers_of

_LOG_BITS = 5
_LIMB_BITS = 1 << _LOG_BITS
_LIMBS = 9  # 277 bits of float32
_LOWEST = -149  # exponent of the smallest subnormal
_FRACTION = 23  # bits of a float32 below those of its exponent
_FRACTION_MASK = 2**_FRACTION - 1
_EXPONENT_MASK = 2**8 - 1
_LARGEST = float(np.finfo(np.float32).max)


class ExactSums:
    """Sums of numbers from 0 on, one per place.

    Attributes:
        limbs: int64 (places, 9); sum = limbs @ 2^(32 i - 149).
    """

    def __init__(self, places: int) -> None:
        self.limbs: npt.NDArray[np.int64] = np.zeros((places, _LIMBS), np.int64)

    def add(self, values: Reals) -> None:
        """Adds values, rounded to float32: (places,), from 0 on; the largest for what is larger."""
        singles = np.minimum(values, _LARGEST).astype(np.float32)
        bits = singles.view(np.int32).astype(np.int64)
        exponent = (bits >> _FRACTION) & _EXPONENT_MASK  # without the sign of -0
        # numbers from 2^-126 on have one bit more than is written
        whole = (bits & _FRACTION_MASK) | (np.minimum(exponent, 1) << _FRACTION)
        position = np.maximum(exponent - 1, 0)
        limb, shift = position >> _LOG_BITS, position & (_LIMB_BITS - 1)
        shifted = whole << shift
        flat = self.limbs.reshape(-1)
        places = np.arange(0, flat.size, _LIMBS) + limb
        np.add.at(flat, places, shifted & (2**_LIMB_BITS - 1))
        np.add.at(flat, places + 1, shifted >> _LIMB_BITS)

    def merged(self, other: Self) -> ExactSums:
        """The sums of both; one of no places has seen nothing."""
        result = ExactSums(0)
        one, two = self.limbs, other.limbs
        result.limbs = one + two if len(one) == len(two) else one if len(one) else two
        return result

    @property
    def values(self) -> Reals:
        """Float64 (places,)."""
        weights = np.ldexp(1.0, _LIMB_BITS * np.arange(_LIMBS) + _LOWEST)
        return np.asarray(self.limbs @ weights)

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]], key: str) -> ExactSums:
        """The sums whose limbs were saved under that key."""
        limbs = integers_of(state, key, 2)
        if limbs.shape[1] != _LIMBS:
            raise CalibrationError(
                f"saved state: '{key}' has {limbs.shape[1]} limbs; wanted {_LIMBS}."
            )
        result = cls(0)
        result.limbs = limbs
        return result
