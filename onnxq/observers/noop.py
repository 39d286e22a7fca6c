"""NoopObserver: looks at nothing, and carries a data type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq.dtypes import QDType
from onnxq.errors import UnsupportedError
from onnxq.observers._base import Observer, State
from onnxq.observers.spec_arguments import FLOAT16, as_qdtype
from onnxq.qparams import QParams


class NoopObserver(Observer):
    """Looks at nothing: for float16 weights, which need no range. It computes no qparams.

    Args:
        dtype: "float16" (or np.float16), stored so and computed in float32; or a QDType.
    Attributes:
        storage: NumPy dtype that the tensor is stored in.

    State: none.
    """

    def __init__(self, dtype: QDType | np.dtype[np.float16] | str = "float16") -> None:
        value = self.spec.argument("dtype", FLOAT16)
        if isinstance(value, np.dtype):
            super().__init__()
            self.storage: np.dtype[np.generic] = value
            return
        super().__init__(as_qdtype(dtype))
        self.storage = self.dtype.storage

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Does nothing."""

    def merge(self, other: Self) -> Self:
        """A NoopObserver.

        Raises:
            CalibrationError: the specs differ.
        """
        return self._fresh_for(other)

    def calculate_qparams(self) -> QParams:
        """Nothing: always an error.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            f"NoopObserver computes no qparams; its tensor is stored as {self.storage}."
        )

    def state(self) -> State:
        """Empty."""
        return {}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Does nothing."""
