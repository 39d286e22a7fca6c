"""MinMaxObserver: the range is that of all values seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.observers._base import Observer, State, warn_unobserved
from onnxq.observers._checks import check_per_tensor
from onnxq.observers._range import EPS, as_float32, finite_range
from onnxq.qparams import QParams, QScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.dtypes import QDType


class MinMaxObserver(Observer):
    """Scale and zero_point for [min of all values, max of all values]; the formulas are in _range.

    State: min, max: float32, shape ().

    Raises:
        QConfigError: a per-channel qscheme; arguments that do not fit together.
    """

    needs_range_alone = True

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
        check_per_tensor(self)
        self.min_val, self.max_val = np.float32(np.inf), np.float32(-np.inf)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Widens the range to that of x."""
        if x.size == 0:
            return
        minimum, maximum = finite_range(as_float32(x, index), index)
        minimum, maximum = min(self.min_val, minimum), max(self.max_val, maximum)
        self.range.check_width(minimum, maximum, index)
        self.min_val, self.max_val = minimum, maximum

    def merge(self, other: Self) -> Self:
        """The range that covers both."""
        merged = self._fresh_for(other)
        merged.min_val = min(self.min_val, other.min_val)
        merged.max_val = max(self.max_val, other.max_val)
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerTensor.

        Raises:
            CalibrationError: the range overflows float32.
        """
        if self.min_val > self.max_val:
            warn_unobserved(self)
            return self.range.default()
        return self.range.qparams(self.min_val, self.max_val)

    def state(self) -> State:
        """{"min", "max"}: float32, shape (); inf and -inf before any data."""
        return {"min": np.asarray(self.min_val), "max": np.asarray(self.max_val)}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over min and max."""
        self.min_val = np.float32(state["min"])
        self.max_val = np.float32(state["max"])
