"""GPTQ on plain arrays: quantized values of a matrix whose results, not whose entries, are nearest.

With H the Hessian, E[x x'] of the inputs, a matrix W and its rounded values Q differ by

    (W - Q) H (W - Q)'          per row: the mean square of the difference of their products

Columns are rounded one after the other; what rounding column j loses is made up for, as far as it
can be, in the columns that are still to come (Frantar et al. 2022, with Hinv = U' U, U upper):

    q_j = round(w_j)        w_k -= (w_j - q_j) / U_jj * U_jk        for all k > j

Columns of large diagonal of H come first (act_order), while there are many others to make up for
them. U follows from H without its inverse:

    H = V V', V upper       U = V^-1

V is the Cholesky factor of H with its columns in reverse, in reverse again: two thirds of n^3
products in place of seven. Large matrices are worked on in place, in one copy of H.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from onnxq.core.arrays import Reals

Places = npt.NDArray[np.int64]
Real = TypeVar("Real", np.float32, np.float64)
Number = TypeVar("Number", bound=np.generic)

SMALL_BLOCK = 16
"""Rows of a block whose changes are taken to the rows behind one by one."""
SMALL = 64
"""Columns up to which a triangular matrix is inverted as any other."""
LARGE = 2048
"""Columns from which on a matrix is factored in place: LAPACK's needs two more of its size."""
STRIPE = 512
"""Columns that are worked on together then."""


def gptq(
    weight: npt.NDArray[Real],
    act_order: Places,
    upper: npt.NDArray[Real],
    round_column: Callable[[int, npt.NDArray[Real]], npt.NDArray[Real]],
) -> None:
    """Rounds a matrix column by column; `round_column` keeps the quantized values.

    Args:
        weight: (..., rows, columns); it is not changed.
        act_order: int64 (..., columns), the columns in the order in which they are rounded.
        upper: (..., columns, columns), U in that order.
        round_column: takes the place of a column in `act_order` and its numbers (..., rows), as
            the errors so far have changed them; gives what its quantized values stand for.
    """
    ordered = np.take_along_axis(weight, act_order[..., np.newaxis, :], -1)

    def error_of_column(j: int, column: npt.NDArray[Real]) -> npt.NDArray[Real]:
        return (column - round_column(j, column)) / upper[..., j, j, np.newaxis]

    change_in_turn(np.swapaxes(ordered, -1, -2).copy(), upper, error_of_column)


def change_in_turn(
    rows: npt.NDArray[Real],
    shares: npt.NDArray[Real],
    change_of: Callable[[int, npt.NDArray[Real]], npt.NDArray[Real]],
    first: int = 0,
) -> None:
    """Overwrites each row with its change c_j, which all remaining rows make up for.

        c_j = change_of(j, row_j)        row_k -= shares_jk c_j        for all k > j

    Changes of the first half of the rows are propagated to the second half at once, and so on
    within each half (lazy batch updates of Frantar et al., in halves): products of matrices in
    place of sums of rows, which differ by the order of sums alone.
    """
    count = rows.shape[-2]
    if count > SMALL_BLOCK:
        half = count // 2
        change_in_turn(rows[..., :half, :], shares[..., :half, :half], change_of, first)
        propagated = np.swapaxes(shares[..., :half, half:], -1, -2)
        rows[..., half:, :] -= propagated @ rows[..., :half, :]
        change_in_turn(rows[..., half:, :], shares[..., half:, half:], change_of, first + half)
        return
    for j in range(count):
        change = change_of(first + j, rows[..., j, :])
        rows[..., j + 1 :, :] -= shares[..., j, j + 1 :, np.newaxis] * change[..., np.newaxis, :]
        rows[..., j, :] = change


def error_of(difference: Reals, hessian: Reals) -> Reals:
    """D H D' per row: the mean square of what a difference of matrices makes in their products."""
    return np.asarray(np.einsum("...rc,...rc->...r", difference @ hessian, difference))


@dataclass(frozen=True, slots=True, eq=False)
class InverseFactor:
    """A factor of the inverse of a Hessian.

    Attributes:
        act_order: int64 (..., columns): those of the largest diagonal first.
        upper: float64 (..., columns, columns), U in that order.
    """

    act_order: Places
    upper: Reals

    def divided(self, cross: Reals) -> Reals:
        """Cross H^-1: float64 (..., rows, columns), in the order of H."""
        ordered = np.take_along_axis(cross, self.act_order[..., np.newaxis, :], -1)
        return self.as_given((ordered @ np.swapaxes(self.upper, -1, -2)) @ self.upper)

    def as_given(self, ordered: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """The columns (..., rows, columns) of an array in this order, in the order of H again."""
        made = np.empty_like(ordered)
        index = np.broadcast_to(self.act_order[..., np.newaxis, :], ordered.shape)
        np.put_along_axis(made, index, ordered, -1)
        return made


def inverse_factor(hessian: Reals, damping: float = 0.0) -> InverseFactor:
    """The InverseFactor of a Hessian with damping: H + damping I."""
    diagonal = np.diagonal(hessian, axis1=-2, axis2=-1)
    act_order = np.argsort(-diagonal, axis=-1, kind="stable")  # equal ones as they stand
    columns = hessian.shape[-1]
    h = np.empty(hessian.shape)
    for index in np.ndindex(hessian.shape[:-2]):
        backward = act_order[index][::-1]
        for start in range(0, columns, STRIPE):
            some = slice(start, start + STRIPE)
            h[index][some] = hessian[index][np.ix_(backward[some], backward)]
    h[..., np.arange(columns), np.arange(columns)] += damping
    if columns < LARGE:
        lower = np.asarray(np.linalg.cholesky(h), np.float64)
    else:
        lower = h
        for index in np.ndindex(hessian.shape[:-2]):
            _factor_in_place(lower[index])
    upper = lower[..., ::-1, ::-1]
    _invert_in_place(upper)
    return InverseFactor(act_order, upper)


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
