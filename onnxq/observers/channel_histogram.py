"""ChannelHistogramObserver: HistogramObserver that also keeps each channel's absmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Singles
from onnxq.dtypes import QDType
from onnxq.observers._base import State
from onnxq.observers._saved_arrays import floats_of
from onnxq.observers.histogram import DEFAULT_BINS, HistogramObserver
from onnxq.observers.value_range import EPS, folded, range_of
from onnxq.qparams import QScheme


class ChannelHistogramObserver(HistogramObserver):
    """HistogramObserver's qparams; and, for the planner, absmax per channel.

    `prepare` puts it in place of HistogramObserver where a tensor is read by depthwise convolutions
    alone: the weights on both sides can then take an equalization scale per channel (see
    stages.channel_scales).

    Args:
        ch_axis: axis of the channels.
        bins: as HistogramObserver; the others too.

    State: HistogramObserver's, and channel_absmax: float32 (channels,), or (0,) before any data.
    """

    def __init__(
        self,
        ch_axis: int = 1,
        bins: int = DEFAULT_BINS,
        upsample_rate: int | None = None,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(
            bins, upsample_rate, dtype, qscheme, reduce_range, quant_min, quant_max, eps
        )
        self.ch_axis = ch_axis
        self.channel_absmax: Singles = np.empty(0, np.float32)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Counts the values of x, and raises each channel's absmax to that of x."""
        if x.size == 0:
            return
        low, high = range_of(x, self.ch_axis, index)
        absmax = np.maximum(-low, high)
        absmax = folded(np.maximum, self.channel_absmax, absmax, self.ch_axis, f"batch {index}")
        super().observe(x, index)
        self.channel_absmax = absmax

    def merge(self, other: Self) -> Self:
        """The counts of both, and the larger absmax."""
        merged = super().merge(other)
        seen = self.channel_absmax, other.channel_absmax
        merged.channel_absmax = folded(np.maximum, *seen, self.ch_axis, "merge")
        return merged

    def state(self) -> State:
        """The histogram's state, and channel_absmax."""
        return {**super().state(), "channel_absmax": self.channel_absmax}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over histogram and absmax."""
        super().load_state({k: v for k, v in state.items() if k != "channel_absmax"})
        self.channel_absmax = np.abs(floats_of(state, "channel_absmax", 1))
