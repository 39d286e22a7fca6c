"""MovingAveragePerChannelMinMaxObserver: each channel's range is an average over the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers._checks import check_averaging_constant, check_per_channel
from onnxq.observers._log import RangeLog
from onnxq.observers._range import EPS, as_float32, channel_range
from onnxq.qparams import PerChannel, QParams, QScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.dtypes import QDType


class MovingAveragePerChannelMinMaxObserver(Observer):
    """A scale and zero_point per channel, for the moving averages of its min and max.

    The average and its dependence on order are MovingAverageMinMaxObserver's; the log takes 8 bytes
    per channel and batch.

    Args:
        averaging_constant: weight of a new batch, in (0, 1].
        ch_axis: axis of the channels in x.
        dtype: as Observer; the others too.

    State: index: int64 (batches,), ascending; min, max: float32 (batches, channels).

    Raises:
        QConfigError: a per-tensor qscheme; arguments that do not fit together.
    """

    needs_range_alone = True

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
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        check_per_channel(self)
        check_averaging_constant(self, averaging_constant)
        self.averaging_constant = averaging_constant
        self.ch_axis = ch_axis
        self.log = RangeLog()

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Logs the range of each channel of x."""
        if x.size == 0:
            return
        minimum, maximum = channel_range(as_float32(x, index), self.ch_axis, index)
        worst = np.argmax(maximum.astype(np.float64) - minimum)
        self.range.check_width(minimum[worst], maximum[worst], index)
        self.log.add(index, minimum, maximum)

    def merge(self, other: Self) -> Self:
        """The log of both.

        Raises:
            CalibrationError: the specs or the numbers of channels differ.
        """
        merged = self._fresh_for(other)
        merged.log = self.log.merged(other.log)
        return merged

    def compact(self) -> None:
        """Keeps the averages in place of the batches."""
        if self.log:
            self.log = RangeLog({0: self.log.moving_average(self.averaging_constant)})

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerChannel(ch_axis), one scale per channel.

        Raises:
            CalibrationError: a range overflows float32.
        """
        if not self.log:
            warn_unobserved(self)
            return self.range.default(PerChannel(self.ch_axis))
        averages = self.log.moving_average(self.averaging_constant)
        return self.range.qparams(*averages, PerChannel(self.ch_axis))

    def state(self) -> State:
        """{"index", "min", "max"}: shapes (batches,) and (batches, channels)."""
        return self.log.state()

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over the log."""
        self.log = RangeLog.from_state(state)
