"""RecordingObserver: keeps every batch, for debugging."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Array
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError, UnsupportedError
from onnxq.observers._base import Observer, State
from onnxq.observers._saved_arrays import batches_of
from onnxq.observers.spec_arguments import FLOAT16, as_qdtype
from onnxq.qparams import QParams

DEFAULT_LIMIT = 1 << 28  # 256 MiB


class RecordingObserver(Observer):
    """Keeps a copy of what passes; it computes no qparams.

    Args:
        dtype: type of the integers; recorded only, as documented.
        byte_limit: largest size of all batches together, in bytes; more is an error.

    State: index: int64 (batches,); "batch 0", "batch 1"...: the batches, in the order of index, and
    within one index (tensors that share qparams) in the order of their bytes.
    Raises:
        QConfigError: a byte_limit that is not positive.
    """

    def __init__(
        self, dtype: QDType | str = dtypes.quint8, byte_limit: int = DEFAULT_LIMIT
    ) -> None:
        super().__init__(dtype)
        if byte_limit <= 0:
            raise QConfigError(f"byte_limit: got {byte_limit}; wanted a positive number of bytes.")
        self.byte_limit = byte_limit
        self.batches: list[tuple[int, Array]] = []

    def observe(self, x: Array, index: int) -> None:
        """Keeps a copy of x; an empty x is skipped.

        Raises:
            CalibrationError: the byte limit is exceeded.
        """
        if x.size == 0:
            return
        self._check_size(x.nbytes, f"batch {index}")
        self.batches.append((index, np.array(x)))

    def _check_size(self, more: int, what: str) -> None:
        size = sum(x.nbytes for _, x in self.batches) + more
        if size > self.byte_limit:
            raise CalibrationError(
                f"{what}: RecordingObserver would hold {size:,} bytes; its byte_limit is "
                f"{self.byte_limit:,}. Record fewer samples, or raise byte_limit."
            )

    def get_tensor_value(self) -> list[Array]:
        """The batches, in the order of their index."""
        return [x for _, x in self._ordered()]

    def _ordered(self) -> list[tuple[int, Array]]:
        return sorted(self.batches, key=lambda b: (b[0], b[1].shape, b[1].tobytes()))

    def merge(self, other: Self) -> Self:
        """The batches of both.

        Raises:
            CalibrationError: the specs differ; the byte limit is exceeded.
        """
        merged = self._fresh_for(other)
        self._check_size(sum(x.nbytes for _, x in other.batches), "merge")
        merged.batches = self.batches + other.batches
        return merged

    def calculate_qparams(self) -> QParams:
        """Nothing: always an error.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "RecordingObserver computes no qparams; read get_tensor_value(), and calibrate with "
            "another observer to quantize."
        )

    def state(self) -> State:
        """{"index": int64 (batches,), "batch 0"...: the arrays}."""
        ordered = self._ordered()
        state: State = {"index": np.asarray([i for i, _ in ordered], np.int64)}
        return state | {f"batch {row}": x for row, (_, x) in enumerate(ordered)}

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Takes over the batches."""
        indices = batches_of(state)
        missing = [row for row in range(len(indices)) if f"batch {row}" not in state]
        if missing:
            raise CalibrationError(f"saved state: 'batch {missing[0]}' is missing.")
        self.batches = [(i, state[f"batch {row}"]) for row, i in enumerate(indices)]


# --- An observer that looks at nothing, and carries a data type


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
        """A NoopObserver."""
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
