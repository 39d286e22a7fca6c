"""PerChannelMinMaxObserver: each channel's range is that of all its values seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.errors import CalibrationError
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers._checks import check_per_channel
from onnxq.observers._range import EPS, F32Array, as_float32, channel_range
from onnxq.qparams import PerChannel, QParams, QScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.dtypes import QDType


class PerChannelMinMaxObserver(Observer):
    """A scale and zero_point per channel, for [min of its values, max of its values].

    Args:
        ch_axis: axis of the channels in x.
        dtype: as Observer; the others too.

    State: min, max: float32, shape (channels,); (0,) before any data.

    Raises:
        QConfigError: a per-tensor qscheme; arguments that do not fit together.
    """

    needs_range_alone = True

    def __init__(
        self,
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
        self.ch_axis = ch_axis
        self.min_val: F32Array = np.empty(0, np.float32)
        self.max_val: F32Array = np.empty(0, np.float32)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Widens each channel's range to that of x."""
        if x.size == 0:
            return
        minimum, maximum = channel_range(as_float32(x, index), self.ch_axis, index)
        minimum, maximum = self._widened(minimum, maximum, f"batch {index}")
        worst = np.argmax(maximum.astype(np.float64) - minimum)
        self.range.check_width(minimum[worst], maximum[worst], index)
        self.min_val, self.max_val = minimum, maximum

    def _widened(self, low: F32Array, high: F32Array, what: str) -> tuple[F32Array, F32Array]:
        if self.min_val.size == 0 or low.size == 0:
            return (low, high) if self.min_val.size == 0 else (self.min_val, self.max_val)
        if low.shape != self.min_val.shape:
            raise CalibrationError(
                f"{what}: got {low.size} channels on axis {self.ch_axis}; before there were "
                f"{self.min_val.size}. Is ch_axis the channels' axis?"
            )
        return np.minimum(self.min_val, low), np.maximum(self.max_val, high)

    def merge(self, other: Self) -> Self:
        """The ranges that cover both.

        Raises:
            CalibrationError: the specs or the numbers of channels differ.
        """
        merged = self._fresh_for(other)
        widened = self._widened(other.min_val, other.max_val, "merge")
        merged.min_val, merged.max_val = widened
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerChannel(ch_axis), one scale per channel.

        Raises:
            CalibrationError: a range overflows float32.
        """
        if self.min_val.size == 0:
            warn_unobserved(self)
            return self.range.default(PerChannel(self.ch_axis))
        return self.range.qparams(self.min_val, self.max_val, PerChannel(self.ch_axis))

    def state(self) -> State:
        """{"min", "max"}: float32, shape (channels,)."""
        return {"min": self.min_val, "max": self.max_val}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over min and max."""
        self.min_val = state["min"].astype(np.float32)
        self.max_val = state["max"].astype(np.float32)
