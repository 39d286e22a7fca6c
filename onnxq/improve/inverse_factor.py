"""Factor of an inverse: triangular, in the order in which columns are rounded.

    H^-1 = U' U, U upper        from H = V V', V upper:  U = V^-1

V is the Cholesky factor of H with its columns in reverse, in reverse again. Neither the inverse nor
its own factor is needed: two thirds of n^3 products in place of seven.
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


def inverse_factor(moments: Reals) -> InverseFactor:
    """The InverseFactor of second moments, float64 (..., columns, columns).

    Raises:
        LinAlgError: they are not positive definite.
    """
    power = np.diagonal(moments, axis1=-2, axis2=-1)
    order = np.argsort(-power, axis=-1, kind="stable")  # equal ones as they stand
    backward = order[..., ::-1]
    h = np.take_along_axis(moments, backward[..., np.newaxis, :], -1)
    h = np.take_along_axis(h, backward[..., :, np.newaxis], -2)
    lower = np.linalg.cholesky(h)
    upper = np.asarray(lower[..., ::-1, ::-1], np.float64)
    return InverseFactor(order, inverse_of_upper(upper))


def inverse_of_upper(upper: Reals) -> Reals:
    """Inverse of upper triangular matrices, half by half, float64 (..., columns, columns)."""
    columns = upper.shape[-1]
    if columns <= SMALL:
        return np.asarray(np.triu(np.linalg.inv(upper)), np.float64)
    half = columns // 2
    made = np.zeros_like(upper)
    first = inverse_of_upper(upper[..., :half, :half])
    last = inverse_of_upper(upper[..., half:, half:])
    made[..., :half, :half], made[..., half:, half:] = first, last
    made[..., :half, half:] = -first @ (upper[..., :half, half:] @ last)
    return made
