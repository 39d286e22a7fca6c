"""StepSizeObserver: the scale that LSQ starts to learn from."""

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers._exact_sums import ExactSums
from onnxq.observers._saved_arrays import integers_of
from onnxq.observers.value_range import EPS, as_float32, granularity_along, range_of
from onnxq.qparams import QParams, QScheme


class StepSizeObserver(Observer):
    """Scale = 2 mean|x| / sqrt(quant_max), zero_point 0 (LSQ, Esser et al. 2020, section 2.1).

    Integers lie in [-quant_max, quant_max], as NarrowRangeObserver's. It is a start for few bits:
    at 8 bits it reaches 14 deviations of normal values, three times as far as there are any.

    Args:
        quant_max: largest integer; 7 for 4 bits.
        ch_axis: axis of the channels; None for one scale.
        dtype: signed type of the integers.
        eps: smallest scale.

    State: count: int64 (), values per scale; sums: exact sums of magnitudes.
    Raises:
        QConfigError: a dtype that does not hold [-quant_max, quant_max].
    """

    def __init__(
        self,
        quant_max: int = 7,
        ch_axis: int | None = 0,
        dtype: QDType | str = dtypes.qint8,
        eps: float = EPS,
    ) -> None:
        per_channel = ch_axis is not None
        scheme = QScheme.PER_CHANNEL_SYMMETRIC if per_channel else QScheme.PER_TENSOR_SYMMETRIC
        super().__init__(dtype, scheme, False, -quant_max, quant_max, eps)
        self.ch_axis = ch_axis
        self.count = 0
        self.sums = ExactSums(0)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Adds the magnitudes of x to each channel's sum.

        Raises:
            CalibrationError: as Observer; other channels than before.
        """
        if x.size == 0:
            return
        values = as_float32(x, index)
        low, _ = range_of(values, self.ch_axis, index)  # guards the axis, and NaN and Inf
        rows = values.reshape(1, -1)
        if self.ch_axis is not None:
            rows = np.moveaxis(values, self.ch_axis, 0).reshape(low.size, -1)
        if self.count and len(rows) != len(self.sums.limbs):
            raise CalibrationError(
                f"batch {index}: {len(rows)} channels on axis {self.ch_axis}; before, there were "
                f"{len(self.sums.limbs)}. Is ch_axis the channels' axis?"
            )
        if not self.count:
            self.sums = ExactSums(len(rows))
        self.sums.add(np.abs(rows).sum(axis=1, dtype=np.float64))
        self.count += rows.shape[1]

    def merge(self, other: Self) -> Self:
        """The magnitudes of both."""
        merged = self._fresh_for(other)
        counts = len(self.sums.limbs), len(other.sums.limbs)
        if all(counts) and counts[0] != counts[1]:
            raise CalibrationError(f"cannot merge {counts[0]} channels with {counts[1]}.")
        merged.count = self.count + other.count
        merged.sums = self.sums.merged(other.sums)
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerChannel(ch_axis), or PerTensor if that is None."""
        granularity = granularity_along(self.ch_axis)
        if not self.count:
            warn_unobserved(self)
            return self.range.default(granularity)
        mean = self.sums.values / self.count
        scale = np.maximum(2 * mean / math.sqrt(self.quant_max), self.eps).astype(np.float32)
        scale = scale.reshape(()) if self.ch_axis is None else scale
        return QParams(scale, np.zeros(scale.shape, np.int64), self.dtype, granularity)

    def state(self) -> State:
        """{"count", "sums"}: int64 (), and limbs of exact sums."""
        return {"count": np.asarray(self.count, np.int64), "sums": self.sums.limbs}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over what `state` gave."""
        self.count = int(integers_of(state, "count", 0))
        self.sums = ExactSums.from_state(state, "sums")
        places = len(self.sums.limbs)
        if (places == 0) != (self.count == 0) or (self.ch_axis is None and places > 1):
            raise CalibrationError(
                f"saved state: {places} sums of {self.count} values with ch_axis {self.ch_axis}."
            )
