"""RangeLog: what makes a moving average mergeable: each batch's index, min and max."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from onnxq.errors import CalibrationError
from onnxq.observers._range import F32Array

if TYPE_CHECKING:
    from collections.abc import Mapping

Range = tuple[F32Array, F32Array]


class RangeLog:
    """The (min, max) of each batch, by the batch's index; both of shape () or (channels,)."""

    def __init__(self, ranges: Mapping[int, Range] | None = None) -> None:
        self.ranges = dict(ranges or {})

    def __len__(self) -> int:
        """Number of batches."""
        return len(self.ranges)

    def add(self, index: int, minimum: F32Array, maximum: F32Array) -> None:
        """Notes the range of batch `index`; a range that it has already is widened.

        Raises:
            CalibrationError: another number of channels than before.
        """
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
        """The inverse of state()."""
        low, high = state["min"].astype(np.float32), state["max"].astype(np.float32)
        rows = enumerate(state["index"].tolist())
        return cls({int(i): (np.asarray(low[row]), np.asarray(high[row])) for row, i in rows})
