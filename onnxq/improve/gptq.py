"""GPTQ on plain arrays: codes of a matrix whose product, not whose entries, is nearest.

With H the second moments of the inputs, a matrix W and its codes Q (times a scale) differ by

    (W - Q) H (W - Q)'          per row: the mean square of the difference of their products

Columns are rounded one after the other; what rounding column j loses is made up for, as far as it
can be, in the columns that are still to come (Frantar et al. 2022, with Hinv = U' U, U upper):

    q_j = round(w_j)        w_k -= (w_j - q_j) / U_jj * U_jk        for all k > j

The columns with the most power come first, while there are many others to make up for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.targets.kept_sums import LARGEST_SUM

if TYPE_CHECKING:
    from onnxq.core.arrays import Ints, Reals
    from onnxq.improve.inverse_factor import InverseFactor, Places

BLOCK = 128
"""Columns that are rounded before the others hear of it: products of matrices in place of sums of
rows (of Frantar et al.; the results differ by the order of sums alone)."""


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows:
    """Codes of a stack of matrices, and the numbers that they stand for: code * scale.

    Attributes:
        scale: float64, broadcasts to (..., rows, 1).
        low: int32, smallest code, broadcasts to (..., rows).
        high: int32, largest code, likewise.
        partner: int64 (columns,): the column whose code is added to this one's in int16, its own
            where none is: two codes of one sign then add up to LARGEST_SUM at most. None: no sums
            are bounded.
    """

    scale: Reals
    low: Ints
    high: Ints
    partner: Places | None = None


def gptq(weight: Reals, factor: InverseFactor, grid: CodedRows) -> Ints:
    """Codes of the weights by GPTQ.

    Args:
        weight: float64 (..., rows, columns).
        factor: of the second moments of the columns.
        grid: of the codes.

    Returns:
        int32, the shape of weight.
    """
    columns, order, upper = weight.shape[-1], factor.order, factor.upper
    w = np.take_along_axis(weight, order[..., np.newaxis, :], -1).astype(np.float64)
    partner = None if grid.partner is None else _moved(grid.partner, order)
    scale = np.broadcast_to(grid.scale, (*w.shape[:-1], 1))[..., 0]
    codes = np.zeros(w.shape, np.int32)
    for start in range(0, columns, BLOCK):
        end = min(start + BLOCK, columns)
        errors = np.zeros((*w.shape[:-1], end - start))
        for j in range(start, end):
            raw = np.clip(np.rint(w[..., j] / scale), grid.low, grid.high)
            if partner is not None:
                raw = _beside(raw, codes, partner[..., j])
            codes[..., j] = raw
            error = (w[..., j] - raw * scale) / upper[..., np.newaxis, j, j]
            w[..., j + 1 : end] -= error[..., np.newaxis] * upper[..., np.newaxis, j, j + 1 : end]
            errors[..., j - start] = error
        w[..., end:] -= errors @ upper[..., start:end, end:]
    return factor.as_given(codes)


def _moved(partner: Places, order: Places) -> Places:
    """Partners of the columns in that order, by their places in it."""
    place = np.argsort(order, axis=-1)
    return np.take_along_axis(place, partner[order], -1)


def _beside(raw: Reals, codes: Ints, partner: Places) -> Reals:
    """The codes of a column, within what those of its partner leave; 0 of one still to come."""
    index = np.broadcast_to(partner[..., np.newaxis, np.newaxis], (*raw.shape, 1))
    other = np.take_along_axis(codes, index, -1)[..., 0]
    return np.clip(raw, -LARGEST_SUM - np.minimum(other, 0), LARGEST_SUM - np.maximum(other, 0))


def error_of(difference: Reals, moments: Reals) -> Reals:
    """D H D' per row: the mean square of what a difference of matrices makes in their products.

    Args:
        difference: float64 (..., rows, columns).
        moments: float64 (..., columns, columns).

    Returns:
        float64 (..., rows).
    """
    return np.asarray(np.einsum("...rc,...rc->...r", difference @ moments, difference))
