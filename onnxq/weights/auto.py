"""Rounding of the layers that gain by it, and bias correction of the others, within a budget.

    a layer has      its better proposal of `round` and of `bias`, by the batches held back
    budget           CPU seconds from the start on; then no layer is solved any more
    afterwards       biases are corrected, which takes next to no time

Both look at the same inputs, so that a layer is walked through once. Layers come in the order in
which they run: those behind the end of the budget make up for what those ahead have left over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from onnxq.core.arrays import Singles
from onnxq.samples import Batches
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.weights.bias import bias_work
from onnxq.weights.improvement import Improved, WeightImprovement, register
from onnxq.weights.layers import Layer
from onnxq.weights.layerwise import LayerWork, Proposal, layerwise
from onnxq.weights.round import rounding_of

LEAST_SECONDS = 1.0
"""Budget where the work so far took less: what small models take in all."""

TIME_WAS_UP = "its weights were not tried with rounding: the time was up"


@register
class Auto(WeightImprovement):
    """The better of `round` and `bias` for each layer, within a budget."""

    name = "auto"
    corrects_biases = True

    def __init__(self, seconds: float = LEAST_SECONDS) -> None:
        self._seconds = seconds

    def within(self, spent_s: float) -> Auto:
        """The same with a budget of as long as the work took so far."""
        return Auto(max(spent_s, LEAST_SECONDS))

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """Layer by layer; see the module."""
        until_s = time.process_time() + self._seconds

        def begin(layer: Layer, batches: int) -> LayerWork | str:
            bias = bias_work(layer, batches)
            if time.process_time() > until_s:
                return bias if isinstance(bias, str) else _Best([bias], until_s)
            rounding = rounding_of(prepared.target, layer, batches)
            works = [work for work in (rounding, bias) if not isinstance(work, str)]
            return _Best(works, until_s) if works else rounding

        return layerwise(prepared, plan, samples, self.name, begin)


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    """The better proposal of several works on one layer.

    Attributes:
        works: rounding first, where there is one; the last one takes least time.
        until_s: CPU time of the process after which the last one alone is asked.
    """

    works: list[LayerWork]
    until_s: float

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        for work in self.works:
            work.observe(x, y, index)

    def proposal(self) -> Proposal:
        """The proposal that gains most on the batches held back; it says where time was short."""
        if time.process_time() > self.until_s:
            only = self.works[-1].proposal()
            return replace(only, why="; ".join(filter(None, (only.why, TIME_WAS_UP))))
        return max((work.proposal() for work in self.works), key=_improvement_db)


def _improvement_db(proposal: Proposal) -> float:
    """Improvement in dB on the batches held back; -inf where there is no proposal."""
    if proposal.new is None or proposal.before_db is None or proposal.after_db is None:
        return float("-inf")
    return proposal.after_db - proposal.before_db
