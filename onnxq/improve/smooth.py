"""Smoothing: large channels of a product's input are divided, the weight's rows multiplied.

`smoothing` has the derivation, `factored` chooses the exponent of each site by measured error, and
`factor_sites` finds who takes the factors: the normalization or the weight ahead, at no cost, or a
Mul, which takes a pass over the tensor beside the product's many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxq.dynamic.dynamic_decision import Objective
from onnxq.improve.factor_sites import sites_of
from onnxq.improve.factor_trial import Flow
from onnxq.improve.factored import factored
from onnxq.improve.improvement import EqualModel, ModelImprovement, register

if TYPE_CHECKING:
    from onnxq.samples import Batches
    from onnxq.static.prepared import Prepared

NO_SITES = "the model has no product of matrices whose input could be smoothed"


@register
class Smooth(ModelImprovement):
    """SmoothQuant, its exponent chosen per site by measured error."""

    name = "smooth"

    def improve(
        self, prepared: Prepared, samples: Batches, objective: Objective = Objective.SPEED
    ) -> EqualModel:
        """Site by site, then as a whole; see onnxq.improve.factored."""
        flow = Flow.of(prepared, samples, objective)
        return factored(flow, self.name, sites_of(prepared, -1, objective), NO_SITES)
