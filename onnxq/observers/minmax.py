"""MinMaxObserver and PerChannelMinMaxObserver: the range is that of all values seen."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Singles
from onnxq.dtypes import QDType
from onnxq.observers._base import Observer, State, check_qscheme, warn_unobserved
from onnxq.observers._saved_arrays import min_max_of
from onnxq.observers.value_range import EPS, folded, granularity_along, range_of
from onnxq.qparams import QParams, QScheme

_LOWEST_UNSEEN = np.asarray(np.inf, np.float32)
_HIGHEST_UNSEEN = np.asarray(-np.inf, np.float32)  # -x of an array of shape () is no array
_NO_CHANNELS = np.empty(0, np.float32)


class MinMaxObserver(Observer):
    """Scale and zero_point for [min of all values, max of all values]; the formulas are in _range.

    State: min, max: float32, shape ().

    Raises:
        QConfigError: a per-channel qscheme; arguments that do not fit together.
    """

    needs_range_alone = True
    ch_axis: int | None = None  # one range; PerChannelMinMaxObserver sets it

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
        check_qscheme(self, self.ch_axis)
        one = self.ch_axis is None
        self.min_val: Singles = _LOWEST_UNSEEN if one else _NO_CHANNELS
        self.max_val: Singles = _HIGHEST_UNSEEN if one else _NO_CHANNELS

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Widens the range, or each channel's, to that of x."""
        if x.size == 0:
            return
        widened = self._widened(*range_of(x, self.ch_axis, index), f"batch {index}")
        self.range.check_width(*widened, index)
        self.min_val, self.max_val = widened

    def _widened(self, low: Singles, high: Singles, what: str) -> tuple[Singles, Singles]:
        return (
            folded(np.minimum, self.min_val, low, self.ch_axis, what),
            folded(np.maximum, self.max_val, high, self.ch_axis, what),
        )

    def merge(self, other: Self) -> Self:
        """The range, or ranges, that cover both."""
        merged = self._fresh_for(other)
        merged.min_val, merged.max_val = self._widened(other.min_val, other.max_val, "merge")
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerTensor, or PerChannel(ch_axis)."""
        granularity = granularity_along(self.ch_axis)
        if not (self.min_val <= self.max_val).any():
            warn_unobserved(self)
            return self.range.default(granularity)
        return self.range.qparams(self.min_val, self.max_val, granularity)

    def state(self) -> State:
        """{"min", "max"}: float32, shape (), inf and -inf before any data; or (channels,)."""
        return {"min": self.min_val, "max": self.max_val}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over min and max."""
        self.min_val, self.max_val = min_max_of(state, 0 if self.ch_axis is None else 1)


class PerChannelMinMaxObserver(MinMaxObserver):
    """A scale and zero_point per channel, for [min of its values, max of its values].

    Args:
        ch_axis: axis of the channels in x.
        dtype: as Observer; the others too.

    State: min, max: float32, shape (channels,); (0,) before any data.
    Raises:
        QConfigError: a per-tensor qscheme; arguments that do not fit together.
    """

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
        self.ch_axis: int = ch_axis
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
