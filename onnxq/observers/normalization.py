"""NormalizationObserver: what a normalization makes of a tensor's channels, and of errors in it.

    z = (x - mean) / sqrt(variance + epsilon),    y = gamma z + beta

An error e of x that has the same power in every channel becomes, in channel c of y,

    gamma_c^2 e^2 mean over rows of 1 / (variance + epsilon)

beside a signal of gamma_c^2 mean(z_c^2). A few channels that are far larger than all others make
the variance, and the scale of 8 bits; gamma of these is small, so that the others are what comes
out. So a tensor may have 40 dB in itself and 7 dB behind: both sides of that ratio are stored here,
per channel, with each channel's range.
"""

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
from onnxq.observers._saved_arrays import floats_of, integers_of
from onnxq.observers.minmax import MinMaxObserver
from onnxq.observers.value_range import EPS, as_float32, channel_range, folded
from onnxq.qparams import QScheme

LEAST_EPSILON = 1e-30  # a row of equal numbers would be divided by 0


class NormalizationObserver(MinMaxObserver):
    """MinMaxObserver that also keeps, per channel, range and power as a normalization sees them.

    Args:
        axis: the first axis that mean and variance are taken over; all behind it are, too.
        ch_axis: axis of the channels.
        groups: of channels on axis 1, each with a mean and variance of its own; 0: none.
        epsilon: added to the variance.
        centred: whether the mean is subtracted (not in RMSNormalization).
        dtype: as Observer; the others too.
    Attributes:
        channel_min: float32 (channels,), or (0,) before any data.
        channel_max: likewise.
        rows: values per channel.
        power_sums: of z^2 per channel.
        inverse_sums: of 1 / (variance + epsilon), per channel.

    State: MinMaxObserver's, the channels' ranges, the rows' number, and two exact sums.
    """

    needs_range_alone = False

    def __init__(
        self,
        axis: int = -1,
        ch_axis: int = -1,
        groups: int = 0,
        epsilon: float = 1e-5,
        centred: bool = True,
        dtype: QDType | str = dtypes.quint8,
        qscheme: QScheme | str = QScheme.PER_TENSOR_AFFINE,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        self.axis, self.ch_axis_of_data, self.groups = axis, ch_axis, groups
        self.epsilon, self.centred = max(float(epsilon), LEAST_EPSILON), centred
        self.channel_min: Singles = np.empty(0, np.float32)
        self.channel_max: Singles = np.empty(0, np.float32)
        self.rows = 0
        self.power_sums = ExactSums(0)
        self.inverse_sums = ExactSums(0)

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Takes the rows of x into account: about 3 ns for each value.

        Raises:
            CalibrationError: NaN or Inf; x has no such axes, or other channels than before.
        """
        if x.size == 0:
            return
        values = as_float32(x, index)
        parts = self._split(values, index)
        low, high = channel_range(values, self.ch_axis_of_data, index)
        # the channels' ranges hold that of all: the values are read once for both
        super().observe(np.concatenate([low, high]), index)
        axes = tuple(range(2 if self.groups else self.axis % parts.ndim, parts.ndim))
        with np.errstate(all="ignore"):  # sums beyond float32 are cut to its largest number
            mean = parts.mean(axes, keepdims=True) if self.centred else np.float32(0)
            centred = parts - mean
            np.multiply(centred, centred, out=centred)
            inverse = 1 / (centred.mean(axes, keepdims=True, dtype=np.float64) + self.epsilon)
            centred *= inverse.astype(np.float32)
        power, inverses = (self._per_channel(a, values) for a in (centred, inverse))
        low = folded(np.minimum, self.channel_min, low, self.ch_axis_of_data, f"batch {index}")
        high = folded(np.maximum, self.channel_max, high, self.ch_axis_of_data, f"batch {index}")
        self.channel_min, self.channel_max = low, high
        for sums, more in ((self.power_sums, power), (self.inverse_sums, inverses)):
            if not len(sums.limbs):
                sums.limbs = ExactSums(low.size).limbs
            sums.add(np.nan_to_num(more))
        self.rows += x.size // low.size

    def _split(self, values: Singles, index: int) -> Singles:
        """The values with an axis for groups, where there are any."""
        rank = values.ndim
        if not (-rank <= self.axis < rank and -rank <= self.ch_axis_of_data < rank):
            raise CalibrationError(
                f"batch {index}: shape {values.shape} has no axes {self.axis} and "
                f"{self.ch_axis_of_data}."
            )
        if not self.groups:
            return values
        if values.shape[1] % self.groups:
            raise CalibrationError(
                f"batch {index}: {values.shape[1]} channels are no {self.groups} groups."
            )
        return values.reshape(values.shape[0], self.groups, -1, *values.shape[2:])

    def _per_channel(self, array: Reals | Singles, values: Singles) -> Reals:
        """Sum over all but the channels; what is one number per row counts once per channel."""
        if self.groups:
            _, groups, members = array.shape[:3]
            per_part = array.sum(axis=(0, *range(3, array.ndim)), dtype=np.float64)
            channels = values.shape[1]
            full = np.broadcast_to(per_part, (groups, channels // groups)).reshape(-1)
            elements = values.size // (values.shape[0] * channels)
            return np.asarray(full * (elements if members == 1 else 1))
        axis = self.ch_axis_of_data % values.ndim
        others = tuple(i for i in range(values.ndim) if i != axis)
        sums = array.sum(axis=others, dtype=np.float64)
        repeats = values.size // array.size // (values.shape[axis] // array.shape[axis])
        return np.asarray(np.broadcast_to(sums * repeats, values.shape[axis]))

    @property
    def channel_power(self) -> Reals:
        """Mean of z^2 per channel, float64 (channels,)."""
        return self.power_sums.values / max(self.rows, 1)

    @property
    def channel_scale(self) -> Reals:
        """Mean of 1 / (variance + epsilon) over each channel's rows, float64 (channels,)."""
        return self.inverse_sums.values / max(self.rows, 1)

    def behind(self, noise: Reals, gamma: Reals, clipped: float = 0.0) -> tuple[float, float]:
        """(signal, error) behind the normalization, means over the channels.

        An error cannot take more than there is: in channels that are smaller than it, all is lost.

        Args:
            noise: mean of the squared error of x; () where it is the same in every channel,
                or (channels,); of other channels, their mean counts.
            gamma: (channels,), or () where there is none.
            clipped: share of the noise that lies on the channels of the widest ranges.
        """
        squares = np.broadcast_to(np.square(gamma, dtype=np.float64), self.channel_power.shape)
        signal = squares * self.channel_power
        per_channel = noise if noise.size == squares.size else noise.mean()
        spread = per_channel * ((1 - clipped) + clipped * self._share_of_the_widest())
        error = squares * np.minimum(spread * self.channel_scale, self.channel_power)
        return float(signal.mean()), float(error.mean())

    def _share_of_the_widest(self) -> Reals:
        """Mean 1 over the channels; 0 in those of less than half the widest range."""
        widths = self.channel_max.astype(np.float64) - self.channel_min
        widest = widths >= widths.max(initial=0.0) / 2
        return np.asarray(widest * (widest.size / max(np.count_nonzero(widest), 1)))

    def merge(self, other: Self) -> Self:
        """Ranges that cover both, and the sums of both."""
        merged = super().merge(other)
        axis = self.ch_axis_of_data
        pair = self.channel_min, other.channel_min
        merged.channel_min = folded(np.minimum, *pair, axis, "merge")
        pair = self.channel_max, other.channel_max
        merged.channel_max = folded(np.maximum, *pair, axis, "merge")
        merged.rows = self.rows + other.rows
        merged.power_sums = self.power_sums.merged(other.power_sums)
        merged.inverse_sums = self.inverse_sums.merged(other.inverse_sums)
        return merged

    def state(self) -> State:
        """MinMaxObserver's, "channel_min", "channel_max", "count", "power", "inverse"."""
        return {
            **super().state(),
            "channel_min": self.channel_min,
            "channel_max": self.channel_max,
            "count": np.asarray(self.rows, np.int64),
            "power": self.power_sums.limbs,
            "inverse": self.inverse_sums.limbs,
        }

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over what `state` gave."""
        super().load_state(state)
        self.channel_min = floats_of(state, "channel_min", 1)
        self.channel_max = floats_of(state, "channel_max", 1)
        self.rows = int(integers_of(state, "count", 0))
        self.power_sums = ExactSums.from_state(state, "power")
        self.inverse_sums = ExactSums.from_state(state, "inverse")
        sizes = {
            self.channel_min.size,
            self.channel_max.size,
            len(self.power_sums.limbs),
            len(self.inverse_sums.limbs),
        }
        if len(sizes) > 1:
            raise CalibrationError(f"saved state: channels {sorted(sizes)}; wanted one number.")
