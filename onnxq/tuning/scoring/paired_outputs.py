"""Outputs of a quantized model beside the float model's, as running sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from onnxq.checking.side_by_side import Pair
from onnxq.errors import CalibrationError
from onnxq.language.decoder import LOGITS
from onnxq.quantized.verdict import OutputVerdict
from onnxq.tuning.scoring.score import least_db

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnxq.core.arrays import Array
    from onnxq.graph.quantized import QuantizedIO


class PairedOutputs:
    """Sums over batches."""

    def __init__(self, quantized: Mapping[str, QuantizedIO] | None = None) -> None:
        self._quantized = dict(quantized or {})
        self._floats: dict[str, Pair] = {}
        self._equal: dict[str, tuple[int, int]] = {}
        self._differing: set[str] = set()

    def update(self, x: Mapping[str, object], y: Mapping[str, object]) -> None:
        """Adds a batch."""
        for name, wanted in x.items():
            got = y[name]
            if isinstance(wanted, np.ndarray) and isinstance(got, np.ndarray):
                self._add(name, wanted, got)

    def _add(self, name: str, x: Array, y: Array) -> None:
        if x.dtype.kind in "OSU":
            return
        if x.dtype.kind in "biu":
            equal, seen = self._equal.get(name, (0, 0))
            alike = int(np.count_nonzero(x == y)) if x.shape == y.shape else 0
            self._equal[name] = equal + alike, seen + max(x.size, y.size)
            return
        if x.shape != y.shape:
            self._differing.add(name)
            return
        fresh = Pair(name, name, name, None, quantized=self._quantized.get(name))
        pair = self._floats.setdefault(name, fresh)
        pair.sums.add(pair.compared(x, y))

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output of floats -> dB, of its worst part; NaN where it cannot be compared."""
        sums = {name: pair.sums for name, pair in self._floats.items()}
        found = {name: each.worst_db for name, each in sums.items() if each.compared.elements}
        return found | dict.fromkeys(sorted(self._differing), math.nan)

    @property
    def worst_db(self) -> float:
        """Least dB of all outputs of floats; -inf where one cannot be compared."""
        found = self.sqnr_db.values()
        if not found:
            raise CalibrationError(
                "the model gives no floats that SQNR could compare. Use the metric top1, which "
                "counts equal integers, or FILE.py:function."
            )
        return least_db(found)

    @property
    def kl_bits(self) -> float:
        """KL divergence of the logits, in bits per token; inf where shapes differ."""
        found = [pair.sums.divergence.bits for pair in self._floats.values()]
        bits = next((each for each in found if each is not None), None)
        if LOGITS in self._differing:
            return math.inf
        if bits is None:
            raise CalibrationError(
                f"the model has no output '{LOGITS}' of shape (rows, tokens, vocabulary) whose "
                "distributions kl could compare. Use the metric sqnr, or FILE.py:function."
            )
        return bits

    @property
    def likeness_db(self) -> float:
        """The least dB of all outputs, integers too, as `OutputVerdict.likeness_db` has it."""
        shares = [equal / seen for equal, seen in self._equal.values() if seen]
        integers = [OutputVerdict("", agreement=share).likeness_db for share in shares]
        return least_db([*self.sqnr_db.values(), *integers])

    @property
    def top1(self) -> float:
        """Least share, over outputs, of rows with the largest entry in the same place.

        Of outputs of integers, the share of equal ones. Where shapes differ, none of a batch are,
        and floats have no share at all: they count as 0.
        """
        shares = [pair.sums.top1.share for pair in self._floats.values()]
        found = [share for share in shares if share is not None]
        found += [equal / seen for equal, seen in self._equal.values() if seen]
        found += [0.0] * len(self._differing)
        if not found:
            raise CalibrationError(
                "the model has no output of shape (samples, classes) whose largest entries top1 "
                "could compare, and none of integers. Use the metric sqnr, or FILE.py:function."
            )
        return min(found)
