"""LeastErrorObserver: the scale of each channel, or block, with the least squared error."""

from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

from onnxq import dtypes
from onnxq.core.arrays import Reals, Singles
from onnxq.dtypes import QDType
from onnxq.errors import CalibrationError, QConfigError
from onnxq.observers._base import Observer, State, check_qscheme, warn_unobserved
from onnxq.observers._saved_arrays import batches_of, floats_of
from onnxq.observers.value_range import FINE_EPS, QuantRange, as_float32, channel_range
from onnxq.qparams import PerChannel, QParams, QScheme

DEFAULT_LIMIT = 1 << 32  # 4 GiB: a weight matrix of 32,768 x 32,768


class LeastErrorObserver(Observer):
    """Minimizes sum (x - dequantize(quantize(x)))^2 of each channel over its scale and zero_point.

    For weights, of few bits above all: it looks at the values themselves, which it keeps, not at a
    histogram. The search begins with the qparams of PerChannelMinMaxObserver and only takes
    what is better: on rows of 32 normal values, the error is 0.73 (8 bits), 0.83 (4) and 0.61 (2)
    times that one's, on rows of 768 it is 0.97, 0.68 and 0.37 times. int8 integers keep to
    -127..127: sums with -128 wrap on ARM.

    Args:
        ch_axis: axis of the channels in x.
        dtype: as Observer; the others too.
        byte_limit: largest size of the stored rows, in bytes; more is an error.

    State: index: int64 (batches,); "batch 0" ...: float32 (channels, values), in the order of
    index, and within one index in the order of their bytes.
    Raises:
        QConfigError: a per-tensor qscheme, a byte_limit that is not positive, arguments that do not
            fit together.
    """

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: QDType | str = dtypes.qint8,
        qscheme: QScheme | str = QScheme.PER_CHANNEL_SYMMETRIC,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = FINE_EPS,
        byte_limit: int = DEFAULT_LIMIT,
    ) -> None:
        found = dtypes.find(dtype)
        if quant_min is None and quant_max is None and (found.bits, found.signed) == (8, True):
            quant_min, quant_max = -found.qmax, found.qmax
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, eps)
        check_qscheme(self, ch_axis)
        if byte_limit <= 0:
            raise QConfigError(f"byte_limit: got {byte_limit}; wanted a positive number of bytes.")
        self.ch_axis = ch_axis
        self.byte_limit = byte_limit
        self.batches: list[tuple[int, Singles]] = []

    def observe(self, x: npt.NDArray[np.generic], index: int) -> None:
        """Keeps the values of x, channel by channel; an empty x is skipped.

        Raises:
            CalibrationError: as Observer; other channels than before; the byte limit is exceeded.
        """
        if x.size == 0:
            return
        reals = as_float32(x, index)
        low, high = channel_range(reals, self.ch_axis, index)
        self.range.check_width(low, high, index)
        rows = np.moveaxis(reals, self.ch_axis, 0).reshape(low.size, -1)
        self._check([rows], f"batch {index}")
        self.batches.append((index, np.array(rows)))

    def _check(self, more: list[Singles], what: str) -> None:
        rows_seen = [rows for _, rows in self.batches] + more
        channels = {len(rows) for rows in rows_seen}
        if len(channels) > 1:
            raise CalibrationError(
                f"{what}: got {len(more[0])} channels on axis {self.ch_axis}; before there were "
                f"{len(rows_seen[0])}. Is ch_axis the channels' axis?"
            )
        size = sum(rows.nbytes for rows in rows_seen)
        if size > self.byte_limit:
            raise CalibrationError(
                f"{what}: LeastErrorObserver would hold {size:,} bytes; its byte_limit is "
                f"{self.byte_limit:,}. It is meant for weights; use HistogramObserver for "
                "activations, or raise byte_limit."
            )

    def merge(self, other: Self) -> Self:
        """The values of both.

        Raises:
            CalibrationError: the specs or the numbers of channels differ; the byte limit is
                exceeded.
        """
        merged = self._fresh_for(other)
        self._check([rows for _, rows in other.batches], "merge")
        merged.batches = self.batches + other.batches
        return merged

    def calculate_qparams(self) -> QParams:
        """QParams of granularity PerChannel(ch_axis), one scale per channel."""
        if not self.batches:
            warn_unobserved(self)
            return self.range.default(PerChannel(self.ch_axis))
        rows = np.concatenate([rows for _, rows in self._ordered()], axis=1)
        first = self.range.qparams(rows.min(axis=1), rows.max(axis=1), PerChannel(self.ch_axis))
        scale, zero_point = search_scales(rows, self.range, first.scale, first.zero_point)
        return QParams(scale, zero_point, self.dtype, PerChannel(self.ch_axis))

    def _ordered(self) -> list[tuple[int, Singles]]:
        return sorted(self.batches, key=lambda batch: (batch[0], batch[1].tobytes()))

    def state(self) -> State:
        """{"index": int64 (batches,), "batch 0"...: float32 (channels, values)}."""
        ordered = self._ordered()
        state: State = {"index": np.asarray([i for i, _ in ordered], np.int64)}
        return state | {f"batch {row}": x for row, (_, x) in enumerate(ordered)}

    def load_state(self, state: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Takes over the values."""
        indices = batches_of(state)
        rows = [floats_of(state, f"batch {row}", 2) for row in range(len(indices))]
        if rows:
            self._check(rows, "saved state")
        self.batches = list(zip(indices, rows, strict=True))


I64Array = npt.NDArray[np.int64]

_CHUNK = 1 << 16  # values: they stay in a core's cache from one candidate to the next
_SHARES = np.linspace(1.0, 0.3, 51)  # of the range; below, clipping never pays
_RANGE_SHARES = np.linspace(1.0, 0.4, 7)  # of either end, where the zero point is free
_FINE = np.linspace(0.97, 1.03, 13)
_SHIFTS = (-1, 0, 1)  # of the zero point
_FITS = 4  # rounds of least squares; more change nothing in the fourth digit


def search_scales(
    rows: Singles, integers: QuantRange, scale: npt.ArrayLike, zero_point: npt.ArrayLike
) -> tuple[Singles, I64Array]:
    """(scale, zero_point) per row, of least error among the candidates.

    Candidates for all rows at once: narrower ranges, then finer ones around the best, then the
    scale that fits the integers best in the sense of least squares,

        scale = sum x c / sum c^2,  c = q - zero_point,

    as long as that lowers the error. A candidate counts only if it is better than what there is.
    """
    scales = np.array(scale, np.float32)
    zeros = np.array(zero_point, np.int64)
    step = max(1, _CHUNK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        search = _Search(rows[part], integers, scales[part], zeros[part])
        scales[part], zeros[part] = search.run()
    return scales, zeros


class _Search:
    """The best qparams of each row so far."""

    def __init__(
        self, x: Singles, integers: QuantRange, scale: Singles, zero_point: I64Array
    ) -> None:
        self.x, self.integers = x, integers
        self.scale, self.zero = scale.copy(), zero_point.copy()
        self.error = self._error(self.scale, self.zero)

    def run(self) -> tuple[Singles, I64Array]:
        """All stages."""
        if self.integers.qscheme.symmetric:
            below, above = -self.integers.quant_min, self.integers.quant_max
            if not self.integers.dtype.signed:
                below, above = self.integers.middle, self.integers.quant_max - self.integers.middle
            widest = (below + above) / 2 / min(below, above)  # nothing is clipped on either side
            self._try(self.scale, self.zero, widest * _SHARES, (0,))
        else:
            self._narrow_range()
        for _ in range(2):
            shifts = (0,) if self.integers.qscheme.symmetric else _SHIFTS
            self._try(self.scale.copy(), self.zero.copy(), _FINE, shifts)
        for _ in range(_FITS):
            self._fit()
        return self.scale, self.zero

    def _try(self, scale: Singles, zero: I64Array, shares: Reals, shifts: tuple[int, ...]) -> None:
        scale, zero = scale.copy(), zero.copy()
        for share in shares:
            for shift in shifts:
                self._take(scale * np.float32(share), zero + shift)

    def _narrow_range(self) -> None:
        """Both narrower ranges."""
        low = np.minimum(self.x.min(axis=1), 0).astype(np.float64)
        high = np.maximum(self.x.max(axis=1), 0).astype(np.float64)
        for below in _RANGE_SHARES:
            for above in _RANGE_SHARES:
                scale = ((high * above - low * below) / self.integers.span).astype(np.float32)
                scale = np.maximum(scale, np.float32(self.integers.eps))
                shift = np.rint(low * below / scale).astype(np.int64)
                self._take(scale, self.integers.quant_min - shift)

    def _fit(self) -> None:
        """The scale that suits the present integers, where it is better."""
        c = self._centred(self.scale, self.zero).astype(np.float64)
        weight = np.einsum("rn,rn->r", c, c)
        fitted = np.einsum("rn,rn->r", self.x.astype(np.float64), c) / np.maximum(weight, 1)
        scale = np.where(fitted > 0, fitted, self.scale).astype(np.float32)
        self._take(scale, self.zero)

    def _take(self, scale: Singles, zero: I64Array) -> None:
        """Keeps the candidate in the rows where it is better."""
        scale = np.maximum(scale, np.float32(self.integers.eps))
        zero = np.clip(zero, self.integers.quant_min, self.integers.quant_max)
        error = self._error(scale, zero)
        better = error < self.error
        self.scale[better], self.zero[better] = scale[better], zero[better]
        self.error[better] = error[better]

    def _centred(self, scale: Singles, zero: I64Array) -> Singles:
        """Integers less their zero point, as `quantize` gives it."""
        q = self.x / scale[:, None]
        low = (self.integers.quant_min - zero).astype(np.float32)[:, None]
        high = (self.integers.quant_max - zero).astype(np.float32)[:, None]
        np.clip(q, low, high, out=q)
        return np.asarray(np.rint(q, out=q))

    def _error(self, scale: Singles, zero: I64Array) -> Reals:
        """Squared error of each row, float64."""
        rest = self._centred(scale, zero)
        rest *= scale[:, None]
        rest -= self.x
        # float32 products, float64 sums: ranks candidates to 7 digits, whatever the magnitude
        with np.errstate(under="ignore"):
            relative = rest / scale[:, None]
        squares: Reals = np.einsum("rn,rn->r", relative, relative, dtype=np.float64)
        wide: Reals = scale.astype(np.float64)
        return np.asarray(squares * wide * wide)
