"""Sums over rows of inputs, batch after batch, in place: what `InputMoments` are the means of.

    H += xq' xq        C += x' xq        products in float32, sums in float64

H is symmetric: STRIPE columns of it at a time are computed from the diagonal on, so that beside the
sums no more than a stripe is in memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import CalibrationError
from onnxq.weights.input_moments import InputMoments

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles

STRIPE = 1024
"""Inputs whose products with all others are made at a time."""


class MomentSums:
    """Sums of one tensor.

    Args:
        name: of the tensor, for messages.
        inputs: of the products that read it.
        has_cross: whether the float model's inputs are seen beside those of the quantized one.
    """

    def __init__(self, name: str, inputs: int, *, has_cross: bool) -> None:
        self.name, self.count = name, 0
        self._own = np.zeros((inputs, inputs))
        self._cross = np.zeros((inputs, inputs)) if has_cross else None

    def add(self, seen: Singles, wanted: Singles | None) -> None:
        """Adds rows.

        Args:
            seen: float32 (rows, inputs), in the quantized model.
            wanted: likewise in the float model; None: the same.

        Raises:
            CalibrationError: NaN or Inf in one, or numbers whose squares overflow.
        """
        if not len(seen):
            return
        for rows in (seen,) if wanted is None else (seen, wanted):
            if not can_be_summed(rows):
                raise CalibrationError(
                    f"tensor '{self.name}', which products read, holds NaN, Inf, or numbers whose "
                    "squares overflow float32; look at the samples and at what the float model "
                    "makes of them."
                )
        self.count += len(seen)
        for start in range(0, seen.shape[1], STRIPE):
            stripe = slice(start, start + STRIPE)
            self._own[stripe, start:] += seen[:, stripe].T @ seen[:, start:]
            if self._cross is not None and wanted is not None:
                self._cross[stripe] += wanted[:, stripe].T @ seen

    def moments(self) -> InputMoments:
        """The means; the sums are theirs then, and take no more rows.

        Raises:
            CalibrationError: there was no row.
        """
        if not self.count:
            raise CalibrationError(
                f"tensor '{self.name}', which products read, has no rows in any sample. Give "
                "samples with tokens."
            )
        _mirror(self._own)
        for sums in (self._own, self._cross):
            if sums is not None:
                sums /= self.count
        return InputMoments(self._own, self._cross)


def can_be_summed(rows: Singles) -> bool:
    """Whether the products of rows are all finite, and so are their sums."""
    if not len(rows):
        return True
    limit = math.sqrt(float(np.finfo(np.float32).max) / len(rows))
    # NaN is the largest of any numbers, and below none
    return max(float(rows.max()), -float(rows.min())) <= limit


def _mirror(sums: Reals) -> None:
    """Copies what is above the diagonal below it, in place."""
    for start in range(0, len(sums), STRIPE):
        end = min(start + STRIPE, len(sums))
        corner = np.triu(sums[start:end, start:end])
        sums[start:end, start:end] = corner + np.triu(corner, 1).T
        sums[end:, start:end] = sums[start:end, end:].T
