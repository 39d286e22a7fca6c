"""Factor of an inverse: triangular, in the order in which columns are rounded.

    H^-1 = U' U, U upper        from H = V V', V upper:  U = V^-1

V is the Cholesky factor of H with its columns in reverse, in reverse again. Neither the inverse nor
its own factor is needed: two thirds of n^3 products in place of seven. Large matrices are worked on
in place, in one copy of H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals

Places = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)

SMALL = 64
"""Columns up to which a triangular matrix is inverted as any other."""
LARGE = 2048
"""Columns from which on a matrix is factored in place: LAPACK's needs two more of its size."""
STRIPE = 512
"""Columns that are worked on together then."""


@dataclass(frozen=True, slots=True, eq=False)
class InverseFactor:
    """A factor of the inverse of second moments.

    Attributes:
        order: int64 (..., columns): those with the most power first.
        upper: float64 (..., columns, columns), U in that order.
    """

    order: Places
    upper: Reals

    def divided(self, cross: Reals) -> Reals:
        """Cross H^-1: float64 (..., rows, columns), in the order of H."""
        ordered = np.take_along_axis(cross, self.order[..., np.newaxis, :], -1)
        return self.as_given((ordered @ np.swapaxes(self.upper, -1, -2)) @ self.upper)

    def as_given(self, ordered: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The columns (..., rows, columns) of an array in this order, in the order of H again."""
        made = np.empty_like(ordered)
        index = np.broadcast_to(self.order[..., np.newaxis, :], ordered.shape)
        np.put_along_axis(made, index, ordered, -1)
        return made


def inverse_factor(moments: Reals, raised: float = 0.0) -> InverseFactor:
    """The InverseFactor of second moments, float64 (..., columns, columns).

    Args:
        moments: float64 (..., columns, columns); left as they are.
        raised: what is added to the diagonal.

    Raises:
        LinAlgError: they are not positive definite.
    """
    power = np.diagonal(moments, axis1=-2, axis2=-1)
    order = np.argsort(-power, axis=-1, kind="stable")  # equal ones as they stand
    columns = moments.shape[-1]
    h = np.empty(moments.shape)
    for index in np.ndindex(moments.shape[:-2]):
        backward = order[index][::-1]
        for start in range(0, columns, STRIPE):
            some = slice(start, start + STRIPE)
            h[index][some] = moments[index][np.ix_(backward[some], backward)]
    h[..., np.arange(columns), np.arange(columns)] += raised
    if columns < LARGE:
        lower = np.asarray(np.linalg.cholesky(h), np.float64)
    else:
        lower = h
        for index in np.ndindex(moments.shape[:-2]):
            _factor_in_place(lower[index])
    upper = lower[..., ::-1, ::-1]
    _invert_in_place(upper)
    return InverseFactor(order, upper)


def _factor_in_place(h: Reals) -> None:
    """Leaves the lower Cholesky factor of a matrix in it, stripe by stripe; zeros above."""
    columns = len(h)
    for start in range(0, columns, STRIPE):
        end = min(start + STRIPE, columns)
        corner = np.linalg.cholesky(h[start:end, start:end])
        h[start:end, start:end] = corner
        h[start:end, end:] = 0
        h[end:, start:end] = h[end:, start:end] @ np.linalg.inv(corner).T
        for column in range(end, columns, STRIPE):
            some = slice(column, column + STRIPE)
            h[column:, some] -= h[column:, start:end] @ h[some, start:end].T


def _invert_in_place(upper: Reals) -> None:
    """Leaves the inverse of upper triangular matrices (..., columns, columns) in them."""
    columns = upper.shape[-1]
    if columns <= SMALL:
        upper[...] = np.triu(np.linalg.inv(upper))
        return
    half = columns // 2
    first, last = upper[..., :half, :half], upper[..., half:, half:]
    _invert_in_place(first)
    _invert_in_place(last)
    upper[..., :half, half:] = -first @ (upper[..., :half, half:] @ last)
