"""Made-up networks for the tests of searches: errors, times and bytes of layers add up."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from onnxq.operator import Precision
from onnxq.qconfig import QConfigMapping, onnxq_default_qconfig
from onnxq.tuning.scoring.objective_function import ObjectiveFunction, noise_of
from onnxq.tuning.scoring.score import Score
from onnxq.tuning.search.candidate import Candidate, precision_in, with_precision
from onnxq.tuning.search.local_search import LocalSearch
from onnxq.tuning.search.noise_estimates import NoiseEstimates
from onnxq.tuning.search.proposals import Proposals
from onnxq.tuning.search.quantization_groups import Member, QuantizationGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from onnxq.core.arrays import Reals
    from onnxq.tuning.evaluation.evaluations import Refusal
    from onnxq.tuning.scoring.goal import Goal
    from onnxq.tuning.search.candidate import ConfigChange
    from onnxq.tuning.search.local_search import SearchResult

INTEGER, FLOAT = Precision.INT8, Precision.FLOAT


def searched(
    search: LocalSearch, *starts: Candidate, free: Sequence[ConfigChange] = ()
) -> SearchResult:
    """The search from the best of those starts."""
    return search.run(search.begin(starts, free))


@dataclass(frozen=True)
class Layer:
    """A layer that runs in integers or in float, without any noise then."""

    noise: float
    float_time: float
    integer_time: float
    weights: int = 1000


@dataclass(frozen=True)
class Network:
    """A chain of layers."""

    layers: tuple[Layer, ...]
    layer_type: str = "Conv"

    @cached_property
    def groups(self) -> tuple[QuantizationGroup, ...]:
        return tuple(
            QuantizationGroup(
                Member(f"/layer{i}", "Conv"), (), self.layer_type, (FLOAT, INTEGER), layer.weights
            )
            for i, layer in enumerate(self.layers)
        )

    def score(self, precisions: Sequence[Precision]) -> Score:
        lowest_precision = [precision is INTEGER for precision in precisions]
        pairs = list(zip(self.layers, lowest_precision, strict=True))
        noise = sum(layer.noise for layer, is_quantized in pairs if is_quantized)
        db = -10 * math.log10(noise) if noise else 200.0
        time = sum(x.integer_time if is_quantized else x.float_time for x, is_quantized in pairs)
        size = sum(x.weights * (1 if is_quantized else 4) for x, is_quantized in pairs)
        return Score(db, {"y": db}, size, time)

    def measured(self, mappings: Sequence[QConfigMapping]) -> list[Score | Refusal]:
        return [self.score([precision_in(m, group) for group in self.groups]) for m in mappings]

    def every(self) -> Iterator[Score]:
        """Scores of all precisions that there are."""
        return map(self.score, itertools.product((FLOAT, INTEGER), repeat=len(self.layers)))

    @property
    def start(self) -> Candidate:
        """All layers in integers."""
        mapping = QConfigMapping(onnxq_default_qconfig)
        for group in self.groups:
            mapping = with_precision(mapping, group, INTEGER)
        return Candidate(mapping, self.groups)

    def search(self, goal: Goal, noise: Mapping[str, float] | None = None) -> SearchResult:
        """The search from all integers, with estimates of the noise of layers; None: right ones."""
        proposals = self.proposals(self.objective(goal), noise)
        return searched(LocalSearch(proposals, self.measured, (), goal.max_runs), self.start)

    def objective(self, goal: Goal) -> ObjectiveFunction:
        """ObjectiveFunction that begins with all in integers."""
        return ObjectiveFunction(goal, math.inf)

    def proposals(
        self, objective: ObjectiveFunction, noise: Mapping[str, float] | None = None
    ) -> Proposals:
        """Proposals of changes by those estimates; None: right ones."""
        if noise is None:
            named = zip(self.groups, self.layers, strict=True)
            noise = {group.anchor.name: layer.noise for group, layer in named}

        def time_of(candidate: Candidate) -> float | None:
            return self.score([candidate.precision(group) for group in self.groups]).time_ratio

        return Proposals(objective, NoiseEstimates(dict(noise)), time_of)


@dataclass(frozen=True)
class Chain(Network):
    """Layers between activations that are rounded where a layer on either side is in integers."""

    rounded: tuple[float, ...] = ()

    def score(self, precisions: Sequence[Precision]) -> Score:
        lowest_precision = [precision is INTEGER for precision in precisions]
        sides = itertools.pairwise(lowest_precision)
        between = [x for x, pair in zip(self.rounded, sides, strict=True) if any(pair)]
        noise = sum(between) + sum(
            x.noise for x, c in zip(self.layers, lowest_precision, strict=True) if c
        )
        db = -10 * math.log10(noise) if noise else 200.0
        return replace(super().score(precisions), metric=db, sqnr_db={"y": db})

    @property
    def alone(self) -> dict[str, float]:
        """Noise of each layer with all others in float."""
        found = {}
        for i, group in enumerate(self.groups):
            precisions = [INTEGER if i == j else FLOAT for j in range(len(self.layers))]
            found[group.anchor.name] = noise_of(self.score(precisions))
        return found


@dataclass(frozen=True)
class Classifier(Network):
    """Layers whose errors change the margins of answers; the metric is the share of right ones.

    Attributes:
        margins: (answers,) of the float model: an answer is right where it is above 0.
        errors: (layers, answers), what each layer in integers adds to them.
    """

    margins: Reals = field(default_factory=lambda: np.zeros(0))
    errors: Reals = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def drawn(cls, seed: int, answers: int = 500) -> tuple[Classifier, dict[str, float]]:
        """A classifier that is right in about 88 of 100, and wrong estimates of its layers."""
        network, wrong = drawn(seed)
        random = np.random.default_rng(1000 + seed)
        deviations = [3 * math.sqrt(layer.noise) for layer in network.layers]
        errors = random.normal(size=(answers, len(deviations))) * deviations
        margins = random.normal(1.2, 1.0, answers)
        return cls(network.layers, margins=margins, errors=errors.T), wrong

    def score(self, precisions: Sequence[Precision]) -> Score:
        lowest_precision = [precision is INTEGER for precision in precisions]
        right = self.margins + self.errors[lowest_precision].sum(0) > 0
        return replace(super().score(precisions), metric=float(right.mean()))

    def objective(self, goal: Goal) -> ObjectiveFunction:
        begun, all_float = (
            self.score([precision] * len(self.layers)) for precision in (INTEGER, FLOAT)
        )
        return ObjectiveFunction(goal, all_float.metric, noise_of(begun))


def drawn_chain(seed: int, layers: int = 20) -> Chain:
    """A chain in which activations bring most of the noise."""
    random = np.random.default_rng(seed)
    floats = random.uniform(0.2, 1.0, layers)
    floats /= floats.sum()
    integers = floats * random.uniform(0.3, 0.8, layers)
    columns = (10 ** random.uniform(-6, -5, layers), floats, integers)
    made = itertools.starmap(Layer, zip(*(c.tolist() for c in columns), strict=True))
    rounded = 10 ** random.uniform(-5.5, -4, layers - 1)
    return Chain(tuple(made), rounded=tuple(rounded.tolist()))


def drawn(seed: int, layers: int = 8) -> tuple[Network, dict[str, float]]:
    """A network, and estimates of its layers' noise that are wrong by 5 dB in the mean."""
    random = np.random.default_rng(seed)
    noise = 10 ** random.uniform(-6, -2, layers)
    floats = random.uniform(0.2, 1.0, layers)
    floats /= floats.sum()
    integers = floats * random.uniform(0.3, 1.2, layers)
    weights = random.integers(100, 10_000, layers)
    columns = (noise.tolist(), floats.tolist(), integers.tolist(), weights.tolist())
    network = Network(tuple(itertools.starmap(Layer, zip(*columns, strict=True))))
    wrong = noise * 10 ** random.normal(0, 0.5, layers)
    names = [group.anchor.name for group in network.groups]
    return network, dict(zip(names, wrong.tolist(), strict=True))
