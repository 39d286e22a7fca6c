"""Outputs of a quantized model beside the float model's, as running sums."""

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from onnxq.checking.side_by_side import Pair, Sums
from onnxq.core.arrays import Array
from onnxq.errors import CalibrationError
from onnxq.graph.quantized import QuantizedIO
from onnxq.language.decoder import LOGITS
from onnxq.metrics import FloatAgreement
from onnxq.quantized.output_verdict import OutputVerdict
from onnxq.tuning.scoring.score import least_db


class PairedOutputs:
    """Sums over batches."""

    def __init__(
        self,
        quantized: Mapping[str, QuantizedIO] | None = None,
        beside: FloatAgreement[Any] | None = None,
    ) -> None:
        self.beside = beside
        self._quantized = dict(quantized or {})
        self._pairs: dict[str, Pair] = {}

    def update(self, x: Mapping[str, object], y: Mapping[str, object]) -> None:
        """Adds a batch."""
        numbers: dict[str, tuple[Array, Array]] = {}
        for name, wanted in x.items():
            got = y[name]
            if _is_numbers(wanted) and _is_numbers(got):
                fresh = Pair(name, name, name, None, quantized=self._quantized.get(name))
                pair = self._pairs.setdefault(name, fresh)
                pair.sums.add(pair.compared(wanted, got))
                numbers[name] = wanted, pair.decoded(got)
        if self.beside is not None:
            ours, theirs = ({n: pair[side] for n, pair in numbers.items()} for side in (0, 1))
            self.beside.update(ours, theirs)

    @property
    def _floats(self) -> dict[str, Sums]:
        """Output of floats -> its sums."""
        sums = {name: pair.sums for name, pair in self._pairs.items()}
        return {name: each for name, each in sums.items() if each.agreement is None}

    @property
    def _agreements(self) -> list[float]:
        """Share of equal elements of each output of integers."""
        found = [pair.sums.agreement for pair in self._pairs.values()]
        return [share for share in found if share is not None]

    @property
    def sqnr_db(self) -> dict[str, float]:
        """Output of floats -> dB, of its worst part; NaN where it cannot be compared."""
        seen = {n: s for n, s in self._floats.items() if s.compared.elements or s.differing}
        return {name: math.nan if s.differing else s.worst_db for name, s in seen.items()}

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
        floats = self._floats
        bits = next((s.divergence.bits for s in floats.values() if s.divergence.tokens), None)
        if LOGITS in floats and floats[LOGITS].differing:
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
        integers = [OutputVerdict("", agreement=each).likeness_db for each in self._agreements]
        return least_db([*self.sqnr_db.values(), *integers])

    @property
    def top1(self) -> float:
        """Least share, over outputs, of rows with the largest entry in the same place.

        Of outputs of integers, the share of equal ones. Where shapes differ, none of a batch are,
        and floats have no share at all: they count as 0.
        """
        shares = [0.0 if s.differing else s.top1.share for s in self._floats.values()]
        found = [share for share in shares if share is not None] + self._agreements
        if not found:
            raise CalibrationError(
                "the model has no output of shape (samples, classes) whose largest entries top1 "
                "could compare, and none of integers. Use the metric sqnr, or FILE.py:function."
            )
        return min(found)


def _is_numbers(x: object) -> TypeGuard[Array]:
    return isinstance(x, np.ndarray) and x.dtype.kind not in "OSUT"
