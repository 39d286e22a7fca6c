"""FloatHistogramObserver: how often numbers of each size occur, over all of float32's decades."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Reals
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError
from onnxq.observers._base import State
from onnxq.observers._saved_arrays import integers_of
from onnxq.observers.minmax import MinMaxObserver
from onnxq.observers.value_range import EPS, as_float32
from onnxq.qparams import QScheme

_DROPPED = 21  # bits of a float32 that a bin does not tell; 11 remain
_BINS = 1 << (32 - _DROPPED)
_CHUNK = 1 << 16


class FloatHistogramObserver(MinMaxObserver):
    """MinMaxObserver that also counts values by sign, exponent and first two bits behind the point.

    A bin is a quarter of an octave wide, wherever it is: what a logarithm, a root or a reciprocal
    makes of an error depends on the numbers near 0, which bins of one width put together. Counts
    merge exactly.

    Args:
        dtype: as Observer; the others too.

    State: MinMaxObserver's, and counts: int64 (2048,), by the first 11 bits of the number.
    """

    needs_range_alone = False

    def __init__(
        self,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.counts: npt.NDArray[np.int64] = np.zeros(_BINS, np.int64)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Widens the range to that of x, and counts its values: about 1.5 ns each."""
        super().observe(x, index)
        bits = np.ascontiguousarray(as_float32(x, index)).reshape(-1).view(np.uint32)
        for start in range(0, bits.size, _CHUNK):
            places = (bits[start : start + _CHUNK] >> _DROPPED).astype(np.intp)
            self.counts += np.bincount(places, minlength=_BINS)

    def merge(self, other: Self) -> Self:
        """The range that covers both, and the counts of both."""
        merged = super().merge(other)
        merged.counts = self.counts + other.counts
        return merged

    def state(self) -> State:
        """{"min", "max", "counts"}."""
        return {**super().state(), "counts": self.counts}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over range and counts."""
        super().load_state(state)
        counts = integers_of(state, "counts", 1)
        if counts.size != _BINS:
            raise CalibrationError(f"saved state: {counts.size} counts; wanted {_BINS}.")
        self.counts = counts

    def occupied(self) -> tuple[Reals, Reals]:
        """(values, counts): the middle of each bin that counted something, within the range."""
        places = np.flatnonzero(self.counts)
        low = (places.astype(np.uint32) << _DROPPED).view(np.float32).astype(np.float64)
        high = ((places.astype(np.uint32) << _DROPPED) | (2**_DROPPED - 1)).view(np.float32)
        middle = (low + high.astype(np.float64)) / 2
        middle[(places % (_BINS // 2)) == 0] = 0.0  # zeros, and what is below 2^-126
        middle = np.clip(middle, float(self.min_val), float(self.max_val))
        return middle, self.counts[places].astype(np.float64)
