"""Second moments of a product's inputs: what an error of its weight becomes in its results.

    E|W x - V xq|^2 = tr(W F W') - 2 tr(V C' W') + tr(V H V')
    H = E[xq xq'], C = E[x xq'], F = E[x x']

x is what the product reads in the float model, xq in the quantized one, where weights ahead of it
have errors already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import CalibrationError, ShapeError

if TYPE_CHECKING:
    from onnxq.core.arrays import Reals, Singles


@dataclass(frozen=True, slots=True, eq=False)
class InputMoments:
    """Means over rows of inputs, as they were seen.

    Attributes:
        count: rows.
        own: float64 (inputs, inputs), E[xq xq'].
        cross: float64 (inputs, inputs), E[x xq'] of the float model's x; None: x is xq.
    """

    count: int
    own: Reals
    cross: Reals | None = None

    @classmethod
    def of_rows(cls, seen: Singles, wanted: Singles | None = None) -> InputMoments:
        """Moments of a batch.

        Args:
            seen: float32 (rows, inputs), in the quantized model.
            wanted: float32 of the same shape, in the float model; None: the same.

        Raises:
            CalibrationError: no row, or NaN or Inf in one.
            ShapeError: shapes that differ.
        """
        if wanted is not None and wanted.shape != seen.shape:
            raise ShapeError(
                f"inputs {seen.shape} of the quantized model, {wanted.shape} of the float one."
            )
        if not len(seen):
            raise CalibrationError("moments want rows; got none. Give samples.")
        own = np.asarray(seen.T @ seen, np.float64) / len(seen)
        cross = None if wanted is None else np.asarray(wanted.T @ seen, np.float64) / len(seen)
        found = own if cross is None else own + cross
        if not np.isfinite(found).all():
            raise CalibrationError(
                "the inputs of a product hold NaN, Inf, or numbers whose squares overflow "
                "float32; look at the samples and at what the float model makes of them."
            )
        return cls(len(seen), own, cross)

    def merged(self, other: InputMoments) -> InputMoments:
        """The moments of both; `cross` only where both have one."""
        total = self.count + other.count
        mine, theirs = self.count / total, other.count / total
        cross = None
        if self.cross is not None and other.cross is not None:
            cross = mine * self.cross + theirs * other.cross
        return InputMoments(total, mine * self.own + theirs * other.own, cross)

    @property
    def power(self) -> Reals:
        """float64 (inputs,): mean square of each input."""
        return np.asarray(np.diagonal(self.own))
