"""Outputs of a quantized model beside the float model's, as running sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxq.checking.comparison import Agreement, Comparison
from onnxq.errors import CalibrationError
from onnxq.tuning.score import least_db

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.graph.coded import Coded


class PairedOutputs:
    """Sums over batches.

    Args:
        coded: outputs of the quantized model that are codes, and the numbers that these stand for.
    """

    def __init__(self, coded: Mapping[str, Coded] | None = None) -> None:
        self._coded = dict(coded or {})
        self._floats: dict[str, Comparison] = {}
        self._agreements: dict[str, Agreement] = {}
        self._equal: dict[str, tuple[int, int]] = {}
        self._differing: set[str] = set()

    def update(self, x: Mapping[str, object], y: Mapping[str, object]) -> None:
        """Adds a batch.

        Args:
            x: outputs of the float model by name.
            y: outputs of the quantized one.
        """
        for name, wanted in x.items():
            got = y[name]
            if isinstance(wanted, np.ndarray) and isinstance(got, np.ndarray):
                self._add(name, wanted, got)

    def _add(self, name: str, x: Array, y: Array) -> None:
        if x.dtype.kind in "OSU":
            return
        if name in self._coded and x.shape == y.shape:
            y = self._coded[name].decode(y)
        if x.shape != y.shape:
            self._differing.add(name)
            return
        if x.dtype.kind in "biu":
            equal, seen = self._equal.get(name, (0, 0))
            self._equal[name] = equal + int(np.count_nonzero(x == y)), seen + x.size
            return
        self._floats.setdefault(name, Comparison()).update(x, y)
        if x.ndim == 2 and x.shape[1] > 1:
            self._agreements.setdefault(name, Agreement()).update(x, y)

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output of floats -> dB; NaN where it cannot be compared."""
        found = {name: each.sqnr_db for name, each in self._floats.items() if each.elements}
        return found | dict.fromkeys(sorted(self._differing), math.nan)

    @property
    def worst_db(self) -> float:
        """Least dB of all outputs of floats; -inf where one cannot be compared.

        Raises:
            CalibrationError: no output holds floats.
        """
        found = self.sqnr_db.values()
        if not found:
            raise CalibrationError(
                "the model gives no floats that SQNR could compare. Use the metric top1, which "
                "counts equal integers, or FILE.py:function."
            )
        return least_db(found)

    @property
    def top1(self) -> float:
        """Least share, over outputs, of rows with the largest entry in the same place.

        Of outputs of integers, the share of equal ones; 0 where shapes differ.

        Raises:
            CalibrationError: no output is of shape (samples, classes), and none of integers.
        """
        shares = [each.share for each in self._agreements.values()]
        found = [share for share in shares if share is not None]
        found += [equal / seen for equal, seen in self._equal.values() if seen]
        found += [0.0] * len(self._differing)
        if not found:
            raise CalibrationError(
                "the model has no output of shape (samples, classes) whose largest entries top1 "
                "could compare, and none of integers. Use the metric sqnr, or FILE.py:function."
            )
        return min(found)
