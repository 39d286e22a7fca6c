"""Equalization: channels between two convolutions get like ranges, by factors in their weights.

    conv2(relu(conv1(x))) with  W1[c] / s[c],  b1[c] / s[c],  W2[:, c] * s[c],    s > 0

(Nagel et al. 2019, "Data-Free Quantization", section 4.1.) Where weights have one scale, its

    s[c] = sqrt(r1[c] / r2[c])        r1[c] = max|W1[c]|,  r2[c] = max|W2[:, c]|

gives both weights the range sqrt(r1[c] r2[c]) in channel c; a chain of sites is swept until no
factor changes. Where weights have a scale per channel, which is the default, r1 costs nothing, and
what is left is the tensor between, with one scale for all channels: there the factors are those of
smoothing (onnxq.improve.smoothing), the exponent chosen by the error of conv2's results.

Behind a Relu whose readers are depthwise convolutions, plans have such factors already, which even
leave each integer of a weight as it is (onnxq.static.placing.channel_gains). A Clip has a bound of
its own in each channel then, and forbids it, as do a residual sum, a Sigmoid or a Softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.graph.walk import node_name, walk
from onnxq.improve.carried import carriers, undoing
from onnxq.improve.factor_sites import along, sites_of
from onnxq.improve.factor_trial import Flow
from onnxq.improve.factored import factored, judged
from onnxq.improve.improvement import EqualModel, ModelImprovement, register
from onnxq.operator.nodes import input_at, tensor_of
from onnxq.static.placing.decision import Quantize, weight_observer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from onnxq.core.arrays import Reals, Singles
    from onnxq.improve.factor_sites import Site
    from onnxq.samples import Batches
    from onnxq.static.prepared import Prepared

    Place = tuple[str, int]
    """Name of a node, and a slot."""
    Places = npt.NDArray[np.int64]

SWEEPS = 100
SETTLED = 1e-4
"""Largest change of a factor, as a logarithm, at which sweeping stops."""
NO_SITES = (
    "no tensor between convolutions could carry factors: a sum, a Clip or a curve stands between, "
    "or the plan has factors for it anyway"
)


@register
class Equalize(ModelImprovement):
    """Cross-layer equalization, its factors chosen by measured error."""

    name = "equalize"

    def improve(
        self, prepared: Prepared, samples: Batches, objective: Objective = Objective.SPEED
    ) -> EqualModel:
        """Site by site, then as a whole; see the module and onnxq.improve.factored."""
        flow, sites = Flow.of(prepared, samples, objective), sites_of(prepared, 1, objective)
        if sites and not _has_scales_per_channel(prepared):
            return judged(flow, self.name, balanced(prepared, sites))
        return factored(flow, self.name, sites, NO_SITES)


def equal_ranges(r1: Reals, r2: Reals) -> Reals:
    """S = sqrt(r1 / r2): r1 / s = r2 s, both (channels,); 1 where a range is 0."""
    alive = (r1 > 0) & (r2 > 0)
    ratio = np.divide(r1, r2, out=np.ones_like(r1), where=alive)
    return np.sqrt(ratio)


def balanced(prepared: Prepared, sites: Sequence[Site]) -> dict[Site, Reals]:
    """Factors of all sites at which no site's ranges differ: sweeps of `equal_ranges`.

    Every step takes sum_c |log r1[c] - log r2[c]| of its site to 0, and moves a neighbour's by the
    same factors at most; chains have ends, so that it settles.
    """
    pairs = [_Pair.at(prepared, site) for site in sites]
    weights = {key: np.abs(array) for pair in pairs for key, array in pair.arrays.items()}
    found = {site: np.ones(pair.channels) for site, pair in zip(sites, pairs, strict=True)}
    for _ in range(SWEEPS):
        most = 0.0
        for site, pair in zip(sites, pairs, strict=True):
            r1, r2 = (pair.ranges(weights, places) for places in (pair.makers, pair.readers))
            s = equal_ranges(r1, r2)
            for places, factors in ((pair.makers, 1 / s), (pair.readers, s)):
                for key, labels in places.items():
                    weights[key] = weights[key] * factors[labels]
            found[site] = found[site] * s
            most = max(most, float(np.abs(np.log(s)).max()))
        if most < SETTLED:
            break
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """Weights on both sides of a site.

    Attributes:
        channels: how many the tensor has.
        arrays: (node, slot) -> weight.
        makers: (node, slot) -> channel of the tensor that each element gives.
        readers: likewise, channel that each element reads.
    """

    channels: int
    arrays: Mapping[Place, Singles]
    makers: Mapping[Place, Places]
    readers: Mapping[Place, Places]

    @classmethod
    def at(cls, prepared: Prepared, site: Site) -> _Pair:
        """The pair at a site that folds."""
        nodes = [node for node, _ in walk(prepared.model.graph)]
        x = next(v for n in nodes for v in n.outputs if v.name == site.tensor)
        assert x.shape is not None
        channels = x.shape[site.axis]
        assert isinstance(channels, int)
        numbers = along(np.arange(1.0, channels + 1), site.axis, len(x.shape))
        users = list(dict.fromkeys(use.node for use in x.uses()))
        carried, undone = carriers(x, numbers, users), undoing(x, numbers, users)
        assert carried is not None, "sites_of looked"
        assert undone is not None, "sites_of looked"
        arrays: dict[Place, Singles] = {}
        sides: list[dict[Place, Places]] = []
        for side in (carried.constants, undone):
            found: dict[Place, Places] = {}
            for each in side:
                array = tensor_of(input_at(each.node, each.slot)).numpy()
                if array.ndim > 1:  # a weight; a bias follows
                    place = (node_name(each.node), each.slot)
                    labels = np.rint(each.factor).astype(np.int64) - 1
                    arrays[place] = array
                    found[place] = np.broadcast_to(labels, array.shape)
            sides.append(found)
        return cls(channels, arrays, *sides)

    def ranges(self, weights: Mapping[Place, Reals], places: Mapping[Place, Places]) -> Reals:
        """(channels,): largest magnitude of each channel in these weights."""
        found = np.zeros(self.channels)
        for key, labels in places.items():
            np.maximum.at(found, labels, weights[key])
        return found


def _has_scales_per_channel(prepared: Prepared) -> bool:
    """Whether some quantized weight has a scale per channel."""
    nodes = {node_name(node): node for node, _ in walk(prepared.model.graph)}
    return any(
        weight_observer(nodes[name], decision.rule, prepared.qconfig)().qscheme.per_channel
        for name, decision in prepared.decisions.items()
        if isinstance(decision, Quantize) and decision.rule.weight is not None
    )
