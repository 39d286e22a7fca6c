"""MovingAverageMinMaxObserver: the range is an exponential average of the batches' ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers._checks import check_averaging_constant, check_per_tensor
from onnxq.observers._log import RangeLog
from onnxq.observers._range import EPS, as_float32, finite_range
from onnxq.qparams import QParams, QScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.dtypes import QDType


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
        QConfigError: a per-channel qscheme; arguments that do not fit together.
    """

    needs_range_alone = True

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
        check_per_tensor(self)
        check_averaging_constant(self, averaging_constant)
        self.averaging_constant = averaging_constant
        self.log = RangeLog()

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Logs the range of x."""
        if x.size == 0:
            return
        minimum, maximum = finite_range(as_float32(x, index), index)
        self.range.check_width(minimum, maximum, index)
        self.log.add(index, np.asarray(minimum), np.asarray(maximum))

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
        """QParams of granularity PerTensor.

        Raises:
            CalibrationError: the range overflows float32.
        """
        if not self.log:
            warn_unobserved(self)
            return self.range.default()
        return self.range.qparams(*self.log.moving_average(self.averaging_constant))

    def state(self) -> State:
        """{"index", "min", "max"}: shape (batches,)."""
        return self.log.state()

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over the log."""
        self.log = RangeLog.from_state(state)
