"""Estimates of noise: those of the sensitivity, corrected by each measurement.

Noises of groups add up, but changes take away less than their sum says: an activation stays rounded
as long as one of its neighbours is in integers, which was counted with each of them, and those that
look best are those whose noise was guessed too high (or, left in integers, too low). So

    noise(candidate) = met * (sum / sum where it was met) ** delivered

where `delivered` is the share of the decibels that batches brought, of those that the sums had
promised: 1 at first. What was measured is met, and all in float has no noise, whatever it is. What
it does not explain is put down to the groups of the batch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnxq.operator import Precision
from onnxq.tuning.scoring.objective_function import noise_of
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import Candidate, MeasuredCandidate, PrecisionChange
from onnxq.tuning.search.quantization_groups import QuantizationGroup

NOISE_AT = {
    Precision.INT8: 1.0,
    Precision.INT8_FLOAT_OUTPUT: 0.3,
    Precision.DYNAMIC_INT8: 0.25,
    Precision.WEIGHT_ONLY: 0.1,
    Precision.FLOAT: 0.0,
}
"""Noise of a group over that with integers on both sides, before anything is measured: results that
are not rounded give 5.7 dB on models/transformer, dynamic ranges 6
(benchmarks/results/defaults.md); weights of 8 bits alone are left in the others."""
MOST_CORRECTION = 30.0
"""Factor by which one measurement may correct an estimate: more is the neighbours' doing."""
LEAST_DELIVERED = 0.25
"""Share of the promised decibels that the next batch is expected to bring at least: behind one that
brought nothing, other groups than its own are chosen."""
LEAST_SHARE = 1e-9
"""Noise of a group whose error is too small to be measured, as a share of the numbers' power."""


@dataclass
class NoiseEstimates:
    """Noise of each group, which measurements correct.

    Attributes:
        noise: anchor -> noise at the worst output with the group alone in its lowest precision.
    """

    noise: dict[str, float]
    _scale: float = field(default=1.0)  # of all, so that the last measurement is met
    _met: float = field(default=0.0)  # that measurement
    _promised: float = field(default=0.0)  # by sums of groups, of all batches: logarithms
    _brought: float = field(default=0.0)

    def of(self, group: QuantizationGroup, precision: Precision) -> float:
        """Noise of a group in that precision."""
        alone = max(self.noise.get(group.anchor.name, 0.0), LEAST_SHARE)
        relative = NOISE_AT[precision] / NOISE_AT[group.lowest_precision]
        return self._scale * alone * relative

    def total(self, candidate: Candidate) -> float:
        """Noise of a model; errors that do not know of each other add up."""
        found = self._sum(candidate)
        return self._met * math.pow(found / self._met, self._delivered) if self._met else found

    def sum_for(self, noise: float) -> float:
        """Sum over groups at which a model is expected to have that noise: `total`, reversed."""
        return self._met * math.pow(noise / self._met, 1 / self._delivered) if self._met else noise

    @property
    def _delivered(self) -> float:
        if not self._promised:
            return 1.0
        return min(max(self._brought / self._promised, LEAST_DELIVERED), 1.0)

    def _sum(self, candidate: Candidate) -> float:
        return sum(self.of(group, candidate.precision(group)) for group in candidate.groups)

    def gain(self, candidate: Candidate, change: PrecisionChange) -> float:
        """Noise that a change takes away; negative where it adds some."""
        return self.of(change.group, candidate.precision(change.group)) - self.of(
            change.group, change.precision
        )

    def meet(self, candidate: Candidate, score: Score) -> None:
        """Scales all estimates so that they give what was measured."""
        total = self._sum(candidate)
        if total > 0:
            self._met = max(noise_of(score), LEAST_SHARE)
            self._scale *= self._met / total

    def learn(
        self, point: MeasuredCandidate, changes: Sequence[PrecisionChange], after: Score
    ) -> None:
        """Learns what share of the promised decibels a batch of changes brought."""
        now = self._sum(point.candidate)
        then = max(self._sum(point.candidate.with_changes(changes)), LEAST_SHARE)
        if then < now:
            promised = math.log(now / then)
            brought = math.log(noise_of(point.score) / noise_of(after))
            self._promised += promised
            self._brought += min(max(brought, 0.0), promised)

    def correct(
        self, point: MeasuredCandidate, changes: Sequence[PrecisionChange], after: Score
    ) -> None:
        """Corrects the groups of a batch of changes by what the batch changed."""
        begun = point.candidate
        expected = self.total(begun) - self.total(begun.with_changes(changes))
        found = noise_of(point.score) - noise_of(after)
        if expected == 0:
            return
        factor = min(max(found / expected, 1 / MOST_CORRECTION), MOST_CORRECTION)
        for change in changes:
            name = change.group.anchor.name
            self.noise[name] = max(self.noise.get(name, 0.0), LEAST_SHARE) * factor


def spread(
    costs: Mapping[str, float], layer_sets: Mapping[str, Sequence[QuantizationGroup]]
) -> dict[str, float]:
    """Noise of each group, where that of layer_sets was measured: equal parts.

    A group of none that was measured has the mean of the others: nobody knows it to be quiet.
    """
    found: dict[str, float] = {}
    for name, groups in layer_sets.items():
        if name in costs:
            found |= {group.anchor.name: costs[name] / len(groups) for group in groups}
    if not found:
        return found
    mean = sum(found.values()) / len(found)
    every = [group.anchor.name for groups in layer_sets.values() for group in groups]
    return dict.fromkeys(every, mean) | found
