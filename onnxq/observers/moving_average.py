"""Observers of averages: MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers._base import Observer, State, check_qscheme, warn_unobserved
from onnxq.observers._saved_arrays import batches_of, min_max_of
from onnxq.observers.value_range import EPS, granularity_along, range_of
from onnxq.qparams import QParams, QScheme

Range = tuple[Singles, Singles]


class RangeLog:
    """The (min, max) of each batch, by the batch's index; both of shape () or (channels,)."""

    def __init__(self, ranges: Mapping[int, Range] | None = None) -> None:
        self.ranges = dict(ranges or {})

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.ranges)

    def add(self, index: int, minimum: Singles, maximum: Singles) -> None:
        """Notes the range of batch `index`; a range that it has already is widened."""
        shape = next((low.shape for low, _ in self.ranges.values()), minimum.shape)
        if minimum.shape != shape:
            raise CalibrationError(
                f"batch {index}: got {minimum.size} channels; the batches before had {shape[0]}. "
                "Is ch_axis the channels' axis?"
            )
        low, high = self.ranges.get(index, (minimum, maximum))
        self.ranges[index] = np.minimum(low, minimum), np.maximum(high, maximum)

    def merged(self, other: Self) -> RangeLog:
        """A new log with the batches of both."""
        log = RangeLog(self.ranges)
        for index, (minimum, maximum) in other.ranges.items():
            log.add(index, minimum, maximum)
        return log

    def moving_average(self, constant: float) -> Range:
        """(min, max) folded in the order of the indices: m += constant * (x - m), in float32."""
        c = np.float32(constant)
        ordered = [self.ranges[i] for i in sorted(self.ranges)]
        low, high = ordered[0]
        with np.errstate(over="ignore"):  # a range that overflows is refused by qparams()
            for minimum, maximum in ordered[1:]:
                low = low + c * (minimum - low)
                high = high + c * (maximum - high)
        return low, high

    def state(self) -> dict[str, npt.NDArray[np.generic]]:
        """{"index": int64 (batches,), "min", "max": float32 (batches,) or (batches, channels)}."""
        indices = sorted(self.ranges)
        low = [self.ranges[i][0] for i in indices]
        high = [self.ranges[i][1] for i in indices]
        return {
            "index": np.asarray(indices, np.int64),
            "min": np.asarray(low, np.float32),
            "max": np.asarray(high, np.float32),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, npt.NDArray[np.generic]]) -> RangeLog:
        """Log of what `state` gave."""
        low, high = min_max_of(state, 1, 2)
        indices = batches_of(state)
        if len(low) != len(indices) or len(set(indices)) != len(indices):
            raise CalibrationError(
                f"saved state: {len(low)} ranges of {len(set(indices))} batches; wanted one each."
            )
        rows = enumerate(indices)
        return cls({i: (np.asarray(low[row]), np.asarray(high[row])) for row, i in rows})


class MovingAverageMinMaxObserver(Observer):
    """Scale and zero_point for the moving averages of the batches' min and max.

        m_0 = min(x_0),  m_i = m_(i-1) + averaging_constant * (min(x_i) - m_(i-1))      float32; max
        alike

    The result depends on the order of the batches by definition, so the observer keeps (index, min,
    max) of each, 16 bytes, and folds them in the order of their index. Two batches of the same
    index (tensors that share qparams) count as one batch.

    Args:
        averaging_constant: weight of a new batch, in (0, 1].
        dtype: as Observer; the others too.

    State: index: int64 (batches,), ascending; min, max: float32 (batches,).
    Raises:
        QConfigError: a per-channel qscheme; averaging_constant not in (0, 1]; arguments
            that do not fit together.
    """

    needs_range_alone = True
    ch_axis: int | None = None  # one range; MovingAveragePerChannelMinMaxObserver sets it

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        check_qscheme(self, self.ch_axis)
        if not 0 < averaging_constant <= 1:
            raise QConfigError(
                f"{type(self).__name__}: got averaging_constant {averaging_constant}; "
                "wanted 0 < constant <= 1."
            )
        self.averaging_constant = averaging_constant
        self.log = RangeLog()

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Logs the range of x, or of each of its channels."""
        if x.size == 0:
            return
        low, high = range_of(x, self.ch_axis, index)
        self.range.check_width(low, high, index)
        self.log.add(index, low, high)

    def merge(self, other: Self) -> Self:
        """The log of both."""
        merged = self._fresh_for(other)
        merged.log = self.log.merged(other.log)
        return merged

    def compact(self) -> None:
        """Keeps the averages in place of the batches."""
        if self.log:
            self.log = RangeLog({0: self.log.moving_average(self.averaging_constant)})

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerTensor, or PerChannel(ch_axis)."""
        granularity = granularity_along(self.ch_axis)
        if not self.log:
            warn_unobserved(self)
            return self.range.default(granularity)
        averages = self.log.moving_average(self.averaging_constant)
        return self.range.qparams(*averages, granularity)

    def state(self) -> State:
        """{"index", "min", "max"}: shapes (batches,), of the ranges (batches, channels) too."""
        return self.log.state()

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over the log."""
        log = RangeLog.from_state(state)
        ranks = {low.ndim for low, _ in log.ranges.values()}
        if ranks - {0 if self.ch_axis is None else 1}:
            raise CalibrationError("saved state: ranges per channel for a tensor, or the reverse.")
        self.log = log


class MovingAveragePerChannelMinMaxObserver(MovingAverageMinMaxObserver):
    """A scale and zero_point per channel, for the moving averages of its min and max.

    The log takes 8 bytes per channel and batch.

    Args:
        averaging_constant: weight of a new batch, in (0, 1].
        ch_axis: axis of the channels in x.
        dtype: as Observer; the others too.

    State: index: int64 (batches,), ascending; min, max: float32 (batches, channels).
    Raises:
        QConfigError: a per-tensor qscheme; arguments that do not fit together.
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_CHANNEL_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        self.ch_axis: int = ch_axis
        super().__init__(
            averaging_constant, dtype, qscheme, reduce_range, quant_min, quant_max, eps
        )
