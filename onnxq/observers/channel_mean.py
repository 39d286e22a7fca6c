"""ChannelMeanObserver: mean and variance of each channel, of a part of many values."""

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Reals, Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError
from onnxq.observers._base import State
from onnxq.observers._exact_sums import ExactSums
from onnxq.observers._saved_arrays import integers_of
from onnxq.observers.minmax import MinMaxObserver
from onnxq.observers.value_range import EPS, as_float32
from onnxq.qparams import QScheme

ENOUGH = 1 << 14
"""Values of a batch that are looked at; of a ResNet-50 that takes a tenth of a run."""
BATCHES, FEW = 32, 1 << 11
"""The first batches are looked at; later ones where they have few values. With 1,000
channels, a mean is off by a twentieth of the channel's deviation after 32 batches."""
MOMENTS = 3  # sums above 0, below 0, and of squares


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
        self.sums = ExactSums(0)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Takes up to ENOUGH values of x into account, spread evenly, if its batch is looked at.

        Raises:
            CalibrationError: NaN or Inf; x has no such axis, or other channels than before.
        """
        if x.size == 0 or (index >= BATCHES and x.size > FEW):
            return
        values = as_float32(x, index)
        if not -values.ndim <= self.ch_axis_of_data < values.ndim:
            raise CalibrationError(
                f"batch {index}: shape {values.shape} has no axis {self.ch_axis_of_data}."
            )
        some = _thinned(values, self.ch_axis_of_data % values.ndim)
        channels = some.shape[1]
        if self.rows and channels != self._channels:
            raise CalibrationError(
                f"batch {index}: {channels} channels; before, there were {self._channels}."
            )
        # an error names places of x, where all of it is looked at
        super().observe(values if some.size == values.size else some, index)
        doubles = some.astype(np.float64)
        sums = np.einsum("oci->c", doubles)
        squares = np.einsum("oci,oci->c", doubles, doubles)
        if not self.rows:
            self.sums = ExactSums(MOMENTS * channels)
        self.sums.add(np.concatenate([np.maximum(sums, 0), np.maximum(-sums, 0), squares]))
        self.rows += some.size // channels

    @property
    def _channels(self) -> int:
        return len(self.sums.limbs) // MOMENTS

    def _moments(self) -> Reals:
        """Means of values above 0, below 0 and of squares, float64 (3, channels)."""
        return self.sums.values.reshape(MOMENTS, -1) / max(self.rows, 1)

    @property
    def means(self) -> Reals:
        """Mean of each channel, float64 (channels,)."""
        above, below, _ = self._moments()
        return np.asarray(above - below)

    @property
    def variances(self) -> Reals:
        """Variance of each channel, float64 (channels,)."""
        *_, squares = self._moments()
        return np.asarray(np.maximum(squares - np.square(self.means), 0))

    def merge(self, other: Self) -> Self:
        """The range that covers both, and the sums of both."""
        merged = super().merge(other)
        counts = self._channels, other._channels
        if all(counts) and counts[0] != counts[1]:
            raise CalibrationError(f"cannot merge {counts[0]} channels with {counts[1]}.")
        merged.rows = self.rows + other.rows
        merged.sums = self.sums.merged(other.sums)
        return merged

    def state(self) -> State:
        """MinMaxObserver's, "count" and "sums"."""
        return {
            **super().state(),
            "count": np.asarray(self.rows, np.int64),
            "sums": self.sums.limbs,
        }

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over what `state` gave."""
        super().load_state(state)
        self.rows = int(integers_of(state, "count", 0))
        self.sums = ExactSums.from_state(state, "sums")
        if len(self.sums.limbs) % MOMENTS or bool(self.rows) != bool(len(self.sums.limbs)):
            raise CalibrationError(
                f"saved state: {len(self.sums.limbs)} sums are no three a channel."
            )


def _thinned(values: Singles, axis: int) -> Singles:
    """(outer, channels, inner) of about ENOUGH values: every n-th of the longer axis, n odd."""
    parts = values.reshape(math.prod(values.shape[:axis]), values.shape[axis], -1)
    step = -(-values.size // ENOUGH) | 1  # an odd one meets all columns of an image
    outer, _, inner = parts.shape
    some = parts[:, :, :: min(step, inner)] if inner >= outer else parts[:: min(step, outer)]
    return np.ascontiguousarray(some)  # read from memory once
