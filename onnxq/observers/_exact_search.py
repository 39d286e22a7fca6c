"""The search for each row's scale and zero_point of least squared error, on the values themselves.

Candidates for all rows at once: narrower ranges, then finer ones around the best,
then the scale that fits the integers best in the sense of least squares,

    scale = sum x c / sum c^2,  c = q - zero_point,

as long as that lowers the error. A candidate counts only if it is better than what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles
    from onnxq.observers.value_range import QuantRange

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

    Args:
        rows: float32 (rows, values), finite.
        integers: range of the integers, and whether the zero point is fixed.
        scale: float32 (rows,), positive: the first candidate.
        zero_point: (rows,), the same.
    Returns:
        Shape (rows,) both; the error of no row is larger than the first candidate's.
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
