"""FixedQParamsObserver: qparams that are known ahead, whatever the samples are."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.dtypes import QDType
from onnxq.errors import QConfigError
from onnxq.observers._base import Observer, State
from onnxq.observers.value_range import range_of
from onnxq.qparams import PerTensor, QParams


class FixedQParamsObserver(Observer):
    """Gives one scale and zero point for the tensor, as PyTorch documents it.

    Args:
        scale: positive float32.
        zero_point: integer of the dtype.
        dtype: type of the integers.
        quant_min: smallest integer; with quant_max, or the type's.
        quant_max: largest integer.

    State: none.
    Raises:
        QConfigError: a scale that is not positive and finite, or a zero point beyond the integers.
    """

    needs_range_alone = True

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: QDType | str = dtypes.quint8,
        quant_min: int | None = None,
        quant_max: int | None = None,
    ) -> None:
        super().__init__(dtype, quant_min=quant_min, quant_max=quant_max)
        self.scale, self.zero_point = float(np.float32(scale)), int(zero_point)
        if not 0 < self.scale < np.inf:
            raise QConfigError(f"FixedQParamsObserver: scale {scale}; wanted a positive number.")
        if not self.quant_min <= self.zero_point <= self.quant_max:
            raise QConfigError(
                f"FixedQParamsObserver: zero_point {zero_point}; wanted one of "
                f"{self.quant_min} to {self.quant_max}."
            )

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Passes what is finite, and does nothing with it."""
        if x.size:
            range_of(x, None, index)

    def merge(self, other: Self) -> Self:
        """A FixedQParamsObserver of the same arguments."""
        return self._fresh_for(other)

    def calculate_qparams(self) -> QParams:
        """The qparams that it was made with, per tensor."""
        scale = np.asarray(self.scale, np.float32)
        return QParams(scale, np.asarray(self.zero_point), self.dtype, PerTensor())

    def state(self) -> State:
        """Empty."""
        return {}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Does nothing."""
