"""Tensors that 8 bits cannot hold, as the statistics tell: they are better left in float.

    noise of a rounding = 1 / SQNR, of the tensor in itself, or behind the node that magnifies its
                          error most, where that is more

Roundings are independent, so that their noises add. N of them, each like the model's typical one,
make N typical noises; how far a model's sum exceeds that is its spread, which is 0.9 to 2.9 in all
models that 8 bits suit (benchmarks/results/noise.md). What exceeds an ordinary spread are the
noisiest tensors. They are sensitive where leaving them in float takes three quarters of the noise
away: a bit for everything behind. Where it gains less, their nodes are worth more in integers.
"""

from __future__ import annotations

import math
import statistics as numbers
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from onnxq.graph.walk import node_name, value_name, walk
from onnxq.observers import HistogramObserver, NormalizationObserver
from onnxq.observers.tensor_noise import TensorNoise, noise_at, predicted_noise
from onnxq.operator import Float
from onnxq.qparams import QParams
from onnxq.static.noise.error import of_rounding
from onnxq.static.noise.error_paths import Magnifier, magnifiers
from onnxq.static.planning.activation_qparams import tensor_qparams
from onnxq.static.prepared import Prepared
from onnxq.static.reasons import BelowSqnr
from onnxq.static.statistics import Statistics

TYPICAL_DB = 35.0
"""SQNR of 8 bits on a Laplace distribution, whose tails are as heavy as a usual tensor's: 35 to 36,
by the sample. What has that is fit; a model whose median has less is measured against it."""
TYPICAL_NOISE = noise_at(TYPICAL_DB)
ORDINARY_SPREAD = 2.0
"""Sum of the noises over N typical ones that needs no cause in single tensors."""
ONE_BIT = 4.0
"""Factor of noise that one bit more takes away."""


@dataclass(frozen=True, slots=True)
class TensorLoss:
    """Loss of a tensor in integers, as the SQNR that is left of it.

    Attributes:
        magnifier: the node behind which least is left; None: nothing magnifies its error.
        behind_db: what is left there; None without one.
    """

    tensor: str
    noise: TensorNoise
    magnifier: Magnifier | None
    behind_db: float | None

    @property
    def worst_db(self) -> float:
        """The smaller of both; infinity where neither is known."""
        own = math.inf if self.noise.sqnr_db is None else self.noise.sqnr_db
        return min(own, math.inf if self.behind_db is None else self.behind_db)

    @property
    def worst_noise(self) -> float:
        """Noise over power at `worst_db`; 0 where nothing is known."""
        return noise_at(self.worst_db)


@dataclass(frozen=True, slots=True)
class Budget:
    """Noise of a model's roundings together, and of those that may stay.

    Attributes:
        spread: noise of all over that of as many typical ones.
        rest: noise of those that may stay.
        most: noise of the largest of these; infinity where all may.
    """

    roundings: int
    spread: float
    total: float
    rest: float
    most: float

    @classmethod
    def of(cls, found: Collection[TensorLoss]) -> Budget:
        """The Budget of these roundings; those of which nothing is known count for nothing."""
        noises = sorted(loss.worst_noise for loss in found if loss.worst_db < math.inf)
        if not noises:
            return cls(0, 0.0, 0.0, 0.0, math.inf)
        usual = len(noises) * min(numbers.median(noises), TYPICAL_NOISE)
        sums = np.cumsum(noises)
        total = float(sums[-1])
        good = np.array(noises) <= TYPICAL_NOISE
        fit = int(np.count_nonzero((sums <= ORDINARY_SPREAD * usual) | good))
        rest = float(sums[fit - 1]) if fit else 0.0
        if total < ONE_BIT * rest or fit == len(noises):
            return cls(len(noises), total / usual, total, total, math.inf)
        return cls(len(noises), total / usual, total, rest, noises[fit - 1] if fit else 0.0)


@dataclass(frozen=True, slots=True)
class SensitiveTensor:
    """A tensor that would lose too much in integers."""

    loss: TensorLoss
    reason: BelowSqnr


def sensitive(
    prepared: Prepared, statistics: Statistics, tensors: Mapping[str, QParams] | None = None
) -> dict[str, SensitiveTensor]:
    """Tensor -> why it should stay in float; tensors that integers can hold are missing."""
    found = tensor_losses(prepared, statistics, tensors)
    budget = Budget.of(found.values())
    return {
        name: SensitiveTensor(loss, _reason(loss, budget, statistics))
        for name, loss in found.items()
        if loss.worst_noise > budget.most
    }


def tensor_losses(
    prepared: Prepared, statistics: Statistics, tensors: Mapping[str, QParams] | None = None
) -> dict[str, TensorLoss]:
    """Tensor -> its loss, for each observed tensor that would be rounded."""
    qparams = tensor_qparams(prepared, statistics)[0] if tensors is None else tensors
    paths = magnifiers(prepared.context, statistics.probed, _positive(prepared, statistics))
    reads_integers = _readers_of_integers(prepared)
    found = {}
    for group in prepared.groups:
        for tensor in group.observed:
            if tensor not in qparams:
                continue
            noise = _noise(tensor, qparams[tensor], statistics)
            if noise is None:
                continue
            error = of_rounding(noise, float(qparams[tensor].scale))
            behind = [
                (magnifier.sqnr_db(error), magnifier)
                for magnifier in paths.get(tensor, ())
                if (tensor, magnifier.reader) in reads_integers or (tensor, "") in reads_integers
            ]
            worst = min(behind, key=lambda pair: pair[0], default=(None, None))
            found[tensor] = TensorLoss(tensor, noise, worst[1], worst[0])
    return found


def _positive(prepared: Prepared, statistics: Statistics) -> frozenset[str]:
    """Tensors that have no number below 0, as histograms of them, or of what they copy, say."""
    seen = {
        name
        for name, observer in statistics.observers.items()
        if isinstance(observer, HistogramObserver) and observer.histogram.minimum >= 0
    }
    groups = (group for group in prepared.groups if seen.issuperset(group.observed))
    return frozenset(member for group in groups for member in group.members)


def _readers_of_integers(prepared: Prepared) -> set[tuple[str, str]]:
    """(tensor, node) where the node sees the tensor rounded; node "": every reader does.

    Where float nodes give the tensor, their float readers have it as it is.
    """
    found = set()
    for node, _ in walk(prepared.model.graph):
        decision = prepared.decisions[node_name(node)]
        if isinstance(decision, Float):
            continue
        found |= {(tensor, "") for tensor in decision.results}
        found |= {(value_name(v), node_name(node)) for v in node.inputs if v is not None}
    return found


def _noise(tensor: str, qparams: QParams, statistics: Statistics) -> TensorNoise | None:
    if tensor in statistics.observers:
        return predicted_noise(statistics.observers[tensor], qparams)
    if qparams.scale.ndim:
        return None
    integers = qparams.dtype.qmax - qparams.dtype.qmin + 1
    return TensorNoise(None, float(qparams.scale) ** 2 / 12, 0.0, float(integers))


def _reason(loss: TensorLoss, budget: Budget, statistics: Statistics) -> BelowSqnr:
    own = loss.noise.sqnr_db
    less_db = 10 * math.log10(budget.total / budget.rest) if budget.rest else math.inf
    if (
        loss.magnifier is None
        or loss.behind_db is None
        or (own is not None and own <= loss.behind_db)
    ):
        return BelowSqnr(loss.tensor, own, None, "", "", budget.roundings, less_db)
    channels = _channels(loss.magnifier, statistics)
    behind = loss.magnifier.node
    return BelowSqnr(loss.tensor, own, loss.behind_db, behind, channels, budget.roundings, less_db)


def _channels(magnifier: Magnifier, statistics: Statistics) -> str:
    """How far the widest channels ahead of a normalization stick out, or the empty string."""
    seen = statistics.probed.get(magnifier.tensor)
    if not isinstance(seen, NormalizationObserver) or not seen.channel_max.size:
        return ""
    widths = seen.channel_max.astype(np.float64) - seen.channel_min
    wide = widths[widths > widths.max() / 2]
    if wide.size * 2 >= widths.size:
        return ""
    return (
        f": {wide.size} of {widths.size} channels range over {widths.max():.3g}, the median "
        f"channel over {np.median(widths):.3g}"
    )
