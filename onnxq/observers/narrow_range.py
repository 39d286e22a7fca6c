"""NarrowRangeObserver: onnxq's own default for weights, integers symmetric around 0."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers._saved_arrays import floats_of
from onnxq.observers.value_range import EPS, folded, granularity_along, range_of
from onnxq.qparams import QParams, QScheme


class NarrowRangeObserver(Observer):
    """Scale = absmax / quant_max, zero_point 0: integers lie in [-quant_max, quant_max].

    The smallest integer, -128 of int8, stays unused: ARM kernels add two products in int16, which
    wraps where weights of -128 meet activation integers of 0 (uint8) or -128 (int8); and absmax is
    exact. quant_max 64 keeps sums of two products with uint8 within int16, for x86 CPUs without
    VNNI, which saturate there. A channel gets at least eps times the largest channel's scale, so
    that one whose weights are all zero neither has scale 0 nor one so small that its bias overflows
    at once; a tensor of zeros gets eps.

    Args:
        quant_max: largest integer; 127 or 64 for int8.
        ch_axis: axis of the channels; None for one scale.
        dtype: signed type of the integers.
        eps: smallest scale, relative to the largest channel's.

    State: absmax: float32, shape (), or (channels,).
    Raises:
        QConfigError: an unsigned dtype; a quant_max that it does not hold.
    """

    needs_range_alone = True

    def __init__(
        self,
        quant_max: int = 127,
        ch_axis: int | None = 0,
        dtype: QDType | str = dtypes.qint8,
        eps: float = EPS,
    ) -> None:
        per_channel = ch_axis is not None
        scheme = QScheme.PER_CHANNEL_SYMMETRIC if per_channel else QScheme.PER_TENSOR_SYMMETRIC
        super().__init__(dtype, scheme, False, -quant_max, quant_max, eps)
        if not self.dtype.signed:
            raise QConfigError(f"NarrowRangeObserver: got {self.dtype}; wanted a signed dtype.")
        self.ch_axis = ch_axis
        self.absmax: Singles = np.empty(0, np.float32)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Raises each channel's absmax to that of x."""
        if x.size == 0:
            return
        low, high = range_of(x, self.ch_axis, index)
        absmax = np.asarray(np.maximum(-low, high))
        self.absmax = folded(np.maximum, self.absmax, absmax, self.ch_axis, f"batch {index}")

    def merge(self, other: Self) -> Self:
        """The larger absmax of both."""
        merged = self._fresh_for(other)
        merged.absmax = folded(np.maximum, self.absmax, other.absmax, self.ch_axis, "merge")
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerChannel(ch_axis), or PerTensor if that is None."""
        granularity = granularity_along(self.ch_axis)
        if self.absmax.size == 0:
            warn_unobserved(self)
            return self.range.default(granularity)
        scale = self.absmax / np.float32(self.quant_max)
        largest = scale.max()
        floor = np.float32(self.eps) * (largest if largest > 0 else np.float32(1))
        # a tensor of subnormal numbers: the floor itself could vanish
        scale = np.maximum(scale, max(floor, np.finfo(np.float32).tiny))
        return QParams(scale, np.zeros(scale.shape, np.int64), self.dtype, granularity)

    def state(self) -> State:
        """{"absmax"}: float32, shape (channels,) or (); (0,) before any data."""
        return {"absmax": self.absmax}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over absmax."""
        absmax = np.abs(floats_of(state, "absmax", 0, 1))
        if absmax.size and absmax.ndim != (self.ch_axis is not None):
            raise CalibrationError(
                f"saved state: 'absmax' has shape {absmax.shape} with ch_axis {self.ch_axis}."
            )
        self.absmax = absmax
