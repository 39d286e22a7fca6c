"""PTQ algorithms that cost nothing at run time, within bounded work: the default of `quantize`.

    each layer       rounded by samples; its bias corrected where that would be too much work, or
                     where the rounding of its weight adds next to no noise
    samples          so many as `enough_of` says; 4 batches at least
    work allowed     SHARE multiply-adds for each one of the float model over all samples given
    kept             if the outputs lose no more than before, on batches held back

Work is counted, not timed: the same call gives the same file on a slow machine and on a fast one.
Layers come in the order in which they run. Each adds what its own share allows, and what it leaves
over is there for those behind it.
"""

from dataclasses import dataclass, replace

from onnxq.core.arrays import Singles
from onnxq.errors import OnnxqError, first_line
from onnxq.quantized.outcome import Outcome
from onnxq.samples import Batches
from onnxq.static.plan import Plan
from onnxq.static.prepared import Prepared
from onnxq.weights.algorithm import Improved, WeightAlgorithm, register
from onnxq.weights.bias import bias_work
from onnxq.weights.judgement import enough_of, left_over, row_count, thinned
from onnxq.weights.layers import Layer, layers_of
from onnxq.weights.layerwise import LayerProposal, LayerWork, layerwise, with_outcomes
from onnxq.weights.round import rounding_of, rounding_work

SHARE = 4.0
"""Multiply-adds of rounding for one of the float model's run: those of a calibration take about so
many times as long, observers included."""
LEAST = 2e9
"""Multiply-adds that are allowed in any case: about a tenth of a second."""
MOST_LAYERS = 256
"""Layers that are looked at; each takes some 20 ms, however small, which the multiply-adds omit."""
LEAST_DB = 0.05
"""Noise by the rounding of a weight from which on it is rounded by samples: what is left of a
layer's noise then comes from its input, as from outliers in a transformer, and no integers of the
weight make up for it."""

TOO_MUCH = "its bias alone is corrected: to round it by samples would take {:.1e} multiply-adds"
WORSE = "it loses on the samples held back"


@register
class Auto(WeightAlgorithm):
    """Rounding by samples, or bias correction, whichever is worth its work."""

    name = "auto"
    corrects_biases = True

    def improve(self, prepared: Prepared, plan: Plan, samples: Batches) -> Improved:
        """Layer by layer; what fails leaves everything as it is, and says why."""
        as_it_is = Improved(prepared, plan)
        if not layers_of(prepared.model, plan):
            return with_outcomes(as_it_is, (Outcome(self.name, "", False, why="no layers"),))
        rows = row_count(samples)
        most = enough_of(rows)
        budget = _Budget(max(1.0, rows / most), LEAST)

        def begin(layer: Layer, batches: int) -> LayerWork | str:
            rounding = rounding_of(prepared.target, layer, batches, LEAST_DB)
            bias = bias_work(layer, batches)
            if isinstance(rounding, str):
                return rounding if isinstance(bias, str) else bias
            return _Bounded(layer, batches, rounding, bias, budget)

        try:
            looked_at = thinned(samples, most)
            judges = [] if prepared.feedback else left_over(samples, most)
            made = layerwise(prepared, plan, looked_at, self.name, begin, judges, MOST_LAYERS)
        except OnnxqError as error:
            outcome = Outcome(self.name, "", False, why=first_line(error))
            return with_outcomes(as_it_is, (outcome,))
        *places, whole = made.outcomes[len(plan.outcomes) :]
        if whole.gain_db is None or whole.gain_db >= 0 or not whole.kept:
            if rows <= most:
                return made
            told = (*made.outcomes[:-1], replace(whole, why=""))  # few by choice, of enough
            return Improved(
                replace(made.prepared, outcomes=told), replace(made.plan, outcomes=told)
            )
        undone = [replace(each, kept=False, why=each.why or WORSE) for each in (*places, whole)]
        return with_outcomes(as_it_is, tuple(undone))


@dataclass(slots=True)
class _Budget:
    """Multiply-adds that are allowed, and not spent yet.

    Attributes:
        looked_at: rows that were given, over those that are looked at.
    """

    looked_at: float
    left: float

    def allows(self, run: int, wanted: int) -> bool:
        """Whether a layer of so many multiply-adds, over the rows looked at, may take the others.

        What is allowed for it is added, whatever becomes of it.
        """
        self.left += SHARE * self.looked_at * run
        if wanted > self.left:
            return False
        self.left -= wanted
        return True


class _Bounded:
    """Rounding of a layer where the budget allows it, else the bias."""

    def __init__(
        self,
        layer: Layer,
        batches: int,
        rounding: LayerWork,
        bias: LayerWork | str,
        budget: _Budget,
    ) -> None:
        self._layer, self._batches, self._budget = layer, batches, budget
        self._works: list[LayerWork | str] = [bias, rounding]
        self._why = ""

    def observe(self, x: Singles, y: Singles, index: int) -> None:
        """Shows a batch to rounding or the bias; the first batch tells which is worth its work."""
        if len(self._works) > 1:
            places = self._layer.unfolded.places(x) * self._batches
            groups, outputs, inputs = self._layer.scale.shape[0], *self._layer.matrix.shape[1:]
            wanted = rounding_work(groups, outputs, inputs, places)
            if not self._budget.allows(places * groups * outputs * inputs, wanted):
                self._why = TOO_MUCH.format(wanted)
                self._works.pop()
            del self._works[:-1]
        (work,) = self._works
        if not isinstance(work, str):
            work.observe(x, y, index)

    def proposal(self) -> LayerProposal:
        """The proposal of rounding, or of the bias."""
        work = self._works[-1]
        if isinstance(work, str):
            return LayerProposal(None, why=f"{self._why}; {work}")
        found = work.proposal()
        return replace(found, why="; ".join(filter(None, (found.why, self._why))))
