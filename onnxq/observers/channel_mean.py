"""ChannelMeanObserver: mean and variance of each channel, of a part of many values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np

from onnxq import dtypes
from onnxq.errors import CalibrationError
from onnxq.observers._exact_sums import ExactSums
from onnxq.observers._range import EPS, as_float32
from onnxq.observers._saved_arrays import integers_of
from onnxq.observers.minmax import MinMaxObserver
from onnxq.qparams import QScheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from onnxq.core.arrays import Reals, Singles
    from onnxq.dtypes import QDType
    from onnxq.observers._base import State

ENOUGH = 1 << 15
"""Values of a batch that are looked at: with 1,000 channels, a mean is then off by a fifth of the
channel's deviation after one batch, and by less with every other."""


class ChannelMeanObserver(MinMaxObserver):
    """MinMaxObserver that also keeps sums of each channel's values and of their squares.

    Args:
        ch_axis: axis of the channels.
        dtype: as Observer; the others too.

    Attributes:
        rows: values per channel that were looked at.

    State: MinMaxObserver's, of the values that were looked at, their number, and exact sums.
    """

    needs_range_alone = False

    def __init__(
        self,
        ch_axis: int = -1,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.ch_axis_of_data = ch_axis
        self.rows = 0
        self.above, self.below, self.squares = ExactSums(0), ExactSums(0), ExactSums(0)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Takes up to ENOUGH values of x into account, spread evenly over it.

        Raises:
            CalibrationError: NaN or Inf; x has no such axis, or other channels than before.
        """
        if x.size == 0:
            return
        values = as_float32(x, index)
        if not -values.ndim <= self.ch_axis_of_data < values.ndim:
            raise CalibrationError(
                f"batch {index}: shape {values.shape} has no axis {self.ch_axis_of_data}."
            )
        some = _thinned(values, self.ch_axis_of_data % values.ndim)
        channels = some.shape[1]
        if self.rows and channels != len(self.above.limbs):
            raise CalibrationError(
                f"batch {index}: {channels} channels; before, there were {len(self.above.limbs)}."
            )
        # an error names places of x, where all of it is looked at
        super().observe(values if some.size == values.size else some, index)
        sums = some.sum(axis=(0, 2), dtype=np.float64)
        squares = np.square(some, dtype=np.float64).sum(axis=(0, 2))
        parts = np.maximum(sums, 0), np.maximum(-sums, 0), squares
        for kept, more in zip((self.above, self.below, self.squares), parts, strict=True):
            if not len(kept.limbs):
                kept.limbs = ExactSums(channels).limbs
            kept.add(more)
        self.rows += some.size // channels

    @property
    def means(self) -> Reals:
        """Mean of each channel, float64 (channels,)."""
        return (self.above.values - self.below.values) / max(self.rows, 1)

    @property
    def variances(self) -> Reals:
        """Variance of each channel, float64 (channels,)."""
        squares = self.squares.values / max(self.rows, 1)
        return np.asarray(np.maximum(squares - np.square(self.means), 0))

    def merge(self, other: Self) -> Self:
        """The range that covers both, and the sums of both.

        Raises:
            CalibrationError: the specs or the numbers of channels differ.
        """
        merged = super().merge(other)
        counts = len(self.above.limbs), len(other.above.limbs)
        if all(counts) and counts[0] != counts[1]:
            raise CalibrationError(f"cannot merge {counts[0]} channels with {counts[1]}.")
        merged.rows = self.rows + other.rows
        merged.above = self.above.merged(other.above)
        merged.below = self.below.merged(other.below)
        merged.squares = self.squares.merged(other.squares)
        return merged

    def state(self) -> State:
        """MinMaxObserver's, "count", "above", "below" and "squares"."""
        return {
            **super().state(),
            "count": np.asarray(self.rows, np.int64),
            "above": self.above.limbs,
            "below": self.below.limbs,
            "squares": self.squares.limbs,
        }

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over what `state` gave.

        Raises:
            CalibrationError: arrays that do not fit together.
        """
        super().load_state(state)
        self.rows = int(integers_of(state, "count", 0))
        self.above = ExactSums.from_state(state, "above")
        self.below = ExactSums.from_state(state, "below")
        self.squares = ExactSums.from_state(state, "squares")
        if len({len(sums.limbs) for sums in (self.above, self.below, self.squares)}) > 1:
            raise CalibrationError("saved state: sums of different numbers of channels.")


def _thinned(values: Singles, axis: int) -> Singles:
    """(outer, channels, inner) of about ENOUGH values: every n-th of the longer axis, n odd."""
    channels = values.shape[axis]
    parts = values.reshape(math.prod(values.shape[:axis]), channels, -1)
    step = -(-values.size // ENOUGH) | 1  # an odd one meets all columns of an image
    outer, _, inner = parts.shape
    return parts[:, :, :: min(step, inner)] if inner >= outer else parts[:: min(step, outer)]
